/** A button that changes something: it asks first where that can't be taken back, and shows what was refused. */

import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { cache } from "../api/client";
import { texts } from "../texts";
import { Dialog, Loading, ProblemCard } from "./basics";

interface Answer {
  error?: unknown;
}

/** Run a request once; all that is shown is fetched again after it. */
export function useAction<Given = void>(request: (given: Given) => Promise<Answer>) {
  return useMutation({
    mutationFn: async (given: Given) => {
      const { error } = await request(given);
      if (error) throw error;
    },
    onSettled: () => void cache.invalidateQueries(),
  });
}

/** `ask` is the question before it; with `reason`, its answer is a text that the request gets. */
export function Action({ label, run, ask, reason = false, main = false }: { label: string; run: (reason: string) => Promise<Answer>; ask?: string; reason?: boolean; main?: boolean }) {
  const [asking, setAsking] = useState(false);
  const [text, setText] = useState("");
  const action = useAction(run);
  return (
    <>
      <button className={main ? "main" : ""} disabled={action.isPending} onClick={() => (ask === undefined ? action.mutate("") : setAsking(true))}>{label}</button>
      {action.isPending ? <Loading /> : null}
      {action.error ? <ProblemCard error={action.error} /> : null}
      {asking ? (
        <Dialog title={label} onClose={() => setAsking(false)}>
          <p>{ask}</p>
          <form method="dialog" className="stack" onSubmit={() => action.mutate(text)}>
            {reason ? (
              <label>
                {texts.reason}
                <input required value={text} onChange={(event) => setText(event.target.value)} />
              </label>
            ) : null}
            <div className="row">
              <button className="main">{label}</button>
              <button type="button" onClick={() => setAsking(false)}>{texts.close}</button>
            </div>
          </form>
        </Dialog>
      ) : null}
    </>
  );
}
