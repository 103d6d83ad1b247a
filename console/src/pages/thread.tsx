/** One conversation: its branches, and what stands on one of them. */

import { api, fetcher, type Schema } from "../api/client";
import { Action } from "../parts/action";
import { useFilter } from "../parts/address";
import { Badge, Card, Empty, Heading, Json, Loaded, Table, When } from "../parts/basics";
import { Link, useParams } from "../parts/router";
import { texts } from "../texts";

export default function ThreadPage() {
  const { id = "" } = useParams();
  const path = { thread_id: id };
  const [named, setNamed] = useFilter("branch");
  const [, setAfter] = useFilter("after");
  const thread = api.useQuery("get", "/v1/threads/{thread_id}", { params: { path } });
  return (
    <>
      <Heading title={id}>
        <Link href={`/ask?thread=${encodeURIComponent(id)}`}>{texts.threads.goOn}</Link>
      </Heading>
      <Loaded of={thread}>
        {(found) => (
          <>
            <Branches thread={found} shown={named || found.branch} show={(branch) => { setNamed(branch); setAfter(""); }} />
            <States thread={id} branch={named || found.branch} />
          </>
        )}
      </Loaded>
    </>
  );
}

function Branches({ thread, shown, show }: { thread: Schema<"Session">; shown: string; show: (branch: string) => void }) {
  const checkout = (branch: string) =>
    fetcher.POST("/v1/threads/{thread_id}/checkout", { params: { path: { thread_id: thread.id } }, body: { branch } });
  return (
    <Card title={texts.threads.branches}>
      <Table
        label={texts.threads.branches}
        columns={[texts.threads.branch, texts.threads.begins, texts.nav.runs, texts.threads.last, texts.action]}
        rows={thread.branches.map((branch) => ({
          key: branch.id,
          cells: [
            <button className="plain" aria-pressed={branch.id === shown} onClick={() => show(branch.id)}>{branch.id}</button>,
            branch.parent === null ? texts.threads.atBeginning : texts.threads.at(branch.parent, branch.fork_position ?? 0),
            branch.runs,
            <When time={branch.last_at} />,
            branch.id === thread.branch ? (
              <Badge state="active" />
            ) : branch.hidden ? texts.threads.hidden : (
              <Action label={texts.threads.checkout} run={() => checkout(branch.id)} />
            ),
          ],
        }))}
      />
    </Card>
  );
}

type State = Schema<"StateView">;

/** What the two sides said, by the name of its state, and in which field its text stands. */
const SIDES: Record<string, { side: "user" | "assistant"; field: string }> = {
  UserMessageState: { side: "user", field: "text" },
  AssistantMessageState: { side: "assistant", field: "content" },
};

/** Messages one by one, and the states between them together. */
function paragraphs(states: State[]): ({ said: State } | { steps: State[] })[] {
  const found: ({ said: State } | { steps: State[] })[] = [];
  for (const state of states) {
    const last = found.at(-1);
    if (state.t in SIDES) found.push({ said: state });
    else if (state.t !== "FinishedState" && last !== undefined && "steps" in last) last.steps.push(state);
    else if (state.t !== "FinishedState") found.push({ steps: [state] });
  }
  return found;
}

function Said({ state }: { state: State }) {
  const { side, field } = SIDES[state.t] ?? { side: "assistant", field: "content" };
  return (
    <div className={`said ${side}`}>
      <div className="row faint">
        <strong>{texts.threads.sides[side]}</strong>
        {state.run_id === null ? null : <Link href={`/runs/${state.run_id}`}>{texts.run.title(state.run_id.slice(-8))}</Link>}
        <When time={new Date(state.ts * 1_000).toISOString()} />
      </div>
      <p className="answer">{String(state.data[field] ?? "")}</p>
    </div>
  );
}

function Steps({ states }: { states: State[] }) {
  return (
    <details>
      <summary>{texts.threads.steps(states.length)}</summary>
      <div className="stack">
        {states.map((state) => (
          <details key={state.reference}>
            <summary>{state.position} {state.t} {state.agent}</summary>
            <Json value={state.data} />
          </details>
        ))}
      </div>
    </details>
  );
}

function States({ thread, branch }: { thread: string; branch: string }) {
  const [after, setAfter] = useFilter("after");
  const params = { path: { thread_id: thread }, query: { branch, after: Number(after), limit: 200 } };
  const states = api.useQuery("get", "/v1/threads/{thread_id}/states", { params });
  return (
    <Loaded of={states}>
      {(page) =>
        page.states.length === 0 && after === "" ? (
          <Empty>{texts.threads.nothing} <Link href={`/ask?thread=${encodeURIComponent(thread)}`}>{texts.nav.ask}</Link></Empty>
        ) : (
          <Card title={texts.threads.on(branch)}>
            <div className="stack">
              {paragraphs(page.states).map((one) => "said" in one ? <Said key={one.said.reference} state={one.said} /> : <Steps key={one.steps[0]?.reference} states={one.steps} />)}
              {page.next === null && after === "" ? null : (
                <div className="row">
                  {after === "" ? null : <button onClick={() => setAfter("")}>{texts.threads.first}</button>}
                  {page.next === null ? null : <button onClick={() => setAfter(String(page.next))}>{texts.threads.further}</button>}
                </div>
              )}
            </div>
          </Card>
        )
      }
    </Loaded>
  );
}
