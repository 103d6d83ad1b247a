/** What waits for a person: approvals, calls in doubt, questions, budgets and activations, with what an answer would do. */

import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import { api, cache, fetcher, type Schema } from "../api/client";
import { useFilter } from "../parts/address";
import { Dialog, Elapsed, Empty, Heading, Json, json, Loaded, ProblemCard, visible, When } from "../parts/basics";
import { useMay } from "../parts/caller";
import { Link } from "../parts/router";
import { texts } from "../texts";

type Interrupt = Schema<"RunInterrupt">;
type Kind = Schema<"InterruptKind">;
type Reply = Schema<"InterruptReply">;

/** An activation of a team is an approval of this call. */
const ACTIVATION = "architect.activate_team";
const KINDS = ["approval", "in_doubt", "clarification", "budget", "activation"];
const REFETCH_MS = 3_000;

export function useInterrupts(kind: Kind | "" = "") {
  const query = { ...(kind === "" ? {} : { kind }), limit: 200 };
  return api.useQuery("get", "/v1/approvals", { params: { query } }, { refetchInterval: REFETCH_MS, enabled: useMay("run") });
}

function kindOf(interrupt: Interrupt): string {
  return interrupt.call?.["name"] === ACTIVATION ? "activation" : interrupt.kind;
}

export function Inbox() {
  const [kind, setKind] = useFilter("kind");
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [asked, setAsked] = useState(false);
  const [refused, setRefused] = useState<unknown>(null);
  const answer = useAnswers(setRefused);
  const open = useInterrupts(kind === "activation" ? "approval" : (kind as Kind | ""));
  const list = useRef<HTMLDivElement>(null);
  useKeys(list);

  function toggle(id: string) {
    setChosen((before) => new Set(before.has(id) ? [...before].filter((one) => one !== id) : [...before, id]));
  }

  return (
    <>
      <Heading title={texts.inbox.title}>
        <label className="row">
          {texts.inbox.kind}
          <select value={kind} onChange={(event) => setKind(event.target.value)}>
            <option value="">{texts.inbox.all}</option>
            {KINDS.map((one) => <option key={one} value={one}>{texts.inbox.kinds[one]}</option>)}
          </select>
        </label>
      </Heading>
      <Refused error={refused} />
      <Loaded of={open}>
        {(page) => {
          const interrupts = page.interrupts.filter((one) => kind === "" || kindOf(one) === kind);
          const approvals = interrupts.filter((one) => one.kind === "approval" && chosen.has(one.id));
          const all = (approved: boolean) => answer.mutate(approvals.map((one) => replyTo(one, { approved })));
          if (interrupts.length === 0) {
            return kind === "" ? (
              <Empty>{texts.inbox.empty} <Link href="/ask">{texts.nav.ask}</Link></Empty>
            ) : (
              <Empty>{texts.inbox.emptyKind} <button className="plain" onClick={() => setKind("")}>{texts.inbox.all}</button></Empty>
            );
          }
          return (
            <>
              <p className="faint">{texts.inbox.keys}</p>
              {approvals.length > 1 ? (
                <div className="row">
                  <button className="main" data-key-all="A" onClick={() => setAsked(true)}>{texts.inbox.approveMany(approvals.length)}</button>
                  <button data-key-all="R" onClick={() => all(false)}>{texts.inbox.rejectMany(approvals.length)}</button>
                </div>
              ) : null}
              {asked && approvals.length > 0 ? (
                <Dialog title={texts.inbox.approveMany(approvals.length)} onClose={() => setAsked(false)}>
                  <p>{texts.inbox.sure(approvals.length)}</p>
                  <ul>{approvals.map((one) => <li key={one.id}><code>{`${String(one.call?.["name"] ?? one.message)} ${json(one.call?.["args"] ?? {})}`}</code></li>)}</ul>
                  <form method="dialog" className="row">
                    <button className="main" onClick={() => all(true)}>{texts.inbox.approve}</button>
                    <button data-first="">{texts.close}</button>
                  </form>
                </Dialog>
              ) : null}
              <div className="stack" ref={list}>
                {interrupts.map((one) => (
                  <InterruptCard key={one.id} interrupt={one} chosen={chosen.has(one.id)} onChoose={() => toggle(one.id)} onRefused={setRefused} withRun />
                ))}
                {page.next === null ? null : <p className="faint">{texts.inbox.further}</p>}
              </div>
            </>
          );
        }}
      </Loaded>
    </>
  );
}

interface Answered {
  run: string;
  reply: Reply;
}

function replyTo(interrupt: Interrupt, payload: Reply["payload"] | null): Answered {
  const status = payload === null ? "cancelled" : "resolved";
  return { run: interrupt.run_id, reply: { interruptId: interrupt.id, status, payload: payload ?? {} } };
}

/** Why an answer was refused: its interrupt may be gone already, such as where somebody else was faster. */
export function Refused({ error }: { error: unknown }) {
  return error ? <div className="pinned"><ProblemCard error={error} /></div> : null;
}

/** Answers of one run are accepted together or not at all, whatever becomes of those of others. */
function useAnswers(onRefused: (error: unknown) => void) {
  return useMutation({
    onMutate: () => onRefused(null),
    onError: onRefused,
    mutationFn: async (answers: Answered[]) => {
      let refused: unknown;
      for (const [run, ofRun] of Map.groupBy(answers, (one) => one.run)) {
        const path = { run_id: run };
        const { error } = await fetcher.POST("/v1/runs/{run_id}/resume", { params: { path }, body: ofRun.map((one) => one.reply) });
        refused ??= error;
      }
      if (refused) throw refused;
    },
    onSettled: () => cache.invalidateQueries(),
  });
}

/** One interrupt with the fields of its answer. */
export function InterruptCard({ interrupt, chosen, onChoose, onRefused, withRun = false }: { interrupt: Interrupt; chosen?: boolean; onChoose?: () => void; onRefused: (error: unknown) => void; withRun?: boolean }) {
  const kind = kindOf(interrupt);
  const mayAnswer = { run: useMay("run"), teams: useMay("teams"), admin: useMay("admin") };
  const needed = kind === "activation" ? "admin" : kind === "clarification" && interrupt.path.endsWith(".question") ? "teams" : "run";
  const answer = useAnswers(onRefused);
  const name = texts.inbox.kinds[kind] ?? kind;
  const call = interrupt.call as Schema<"ExactCall"> | null;
  const send = (payload: Reply["payload"] | null) => answer.mutate([replyTo(interrupt, payload)]);
  return (
    <article className="card stack" tabIndex={-1} data-interrupt={interrupt.id} aria-label={`${name}: ${interrupt.reason}`}>
      <div className="row ends">
        <div className="row">
          {interrupt.kind === "approval" && onChoose !== undefined && mayAnswer[needed] ? (
            <input type="checkbox" checked={chosen ?? false} onChange={onChoose} aria-label={texts.inbox.select(call?.name ?? name)} data-key="x" />
          ) : null}
          <strong>{name}</strong>
          {call === null || kind === "activation" ? null : <code>{call.name}</code>}
        </div>
        <span className="faint">
          {interrupt.asked_by ? `${texts.inbox.askedBy(interrupt.asked_by)} · ` : null}
          {interrupt.createdAt ? <>{texts.inbox.waits} <Elapsed time={interrupt.createdAt} /> · </> : null}
          {texts.inbox.ends} <Elapsed time={interrupt.expiresAt} />
        </span>
      </div>
      <p className="answer">{visible(interrupt.message)}</p>
      <p className="faint">{visible(interrupt.reason)}</p>
      {call === null ? null : kind === "activation" ? <Activation args={call.args} /> : <Json value={call.args} />}
      {withRun ? <About interrupt={interrupt} /> : null}
      {mayAnswer[needed] ? <Fields interrupt={interrupt} busy={answer.isPending} send={send} /> : <p className="faint">{texts.inbox.never(needed)}</p>}
    </article>
  );
}

/** What would be activated: the version, how it was proved, and the tools that it may call. */
function Activation({ args }: { args: Record<string, unknown> }) {
  const tools = (args["tools"] ?? []) as string[];
  const { team, version } = args as { team: string; version: number };
  return (
    <>
      <dl>
        <dt>{texts.teams.team}</dt>
        <dd><Link href={`/teams/${encodeURIComponent(team)}?version=${version}`}>{`${team} ${version}`}</Link></dd>
        <dt>{texts.teams.proof}</dt>
        <dd>{String(args["proof"])}</dd>
        <dt>{texts.reason}</dt>
        <dd>{String(args["reason"] || "–")}</dd>
        <dt>{texts.registry.tools}</dt>
        <dd>{tools.join(", ") || texts.none}</dd>
      </dl>
      <details><summary>{texts.inbox.exactly}</summary><Json value={args} /></details>
    </>
  );
}

/** The run that waits: what was asked, and whether the call can be taken back. Fetched once somebody looks. */
function About({ interrupt }: { interrupt: Interrupt }) {
  const [shown, setShown] = useState(false);
  const params = { path: { run_id: interrupt.run_id }, query: { include: "calls" } };
  const run = api.useQuery("get", "/v1/runs/{run_id}", { params }, { enabled: shown });
  const id = (interrupt.call as Schema<"ExactCall"> | null)?.call_id;
  return (
    <details onToggle={(event) => setShown(event.currentTarget.open)}>
      <summary>{texts.inbox.about}</summary>
      {shown ? (
        <Loaded of={run}>
          {({ input, run_id, tasks }) => {
            const call = tasks.flatMap((task) => task.attempts.flatMap((attempt) => attempt.calls)).find((one) => one.id === id);
            return (
              <div className="stack">
                <p className="answer">{input}</p>
                {call?.effect === "unsafe" ? <p><span className="badge wait">{texts.run.unsafe}</span></p> : null}
                <Link href={`/runs/${run_id}`}>{texts.run.open}</Link>
              </div>
            );
          }}
        </Loaded>
      ) : null}
    </details>
  );
}

type Send = (payload: Reply["payload"] | null) => void;

function Fields({ interrupt, busy, send }: { interrupt: Interrupt; busy: boolean; send: Send }) {
  const [text, setText] = useState("");
  const properties = (interrupt.responseSchema["properties"] ?? {}) as Record<string, { enum?: string[]; examples?: string[] }>;
  const from = interrupt.responseSchema["notDoneFrom"] as string | undefined;
  const note = text === "" ? {} : { note: text };
  switch (interrupt.kind) {
    case "approval":
      return (
        <div className="row">
          <button className="main" data-key="a" disabled={busy} onClick={() => send({ approved: true, ...note })}>{texts.inbox.approve}</button>
          <button data-key="r" disabled={busy} onClick={() => send({ approved: false, ...note })}>{texts.inbox.reject}</button>
          <input className="grow" data-key="e" value={text} onChange={(event) => setText(event.target.value)} placeholder={texts.inbox.note} aria-label={texts.inbox.note} />
        </div>
      );
    case "in_doubt":
      return (
        <div className="row">
          {(properties["resolution"]?.enum ?? []).map((one, at) => (
            <button key={one} data-key={String(at + 1)} disabled={busy} onClick={() => send({ resolution: one })}>{texts.inbox.resolutions[one] ?? one}</button>
          ))}
          {from === undefined || Date.parse(from) <= Date.now() ? null : <span className="faint">{texts.inbox.notDoneFrom} <When time={from} /></span>}
        </div>
      );
    case "clarification":
      return (
        <form className="row" onSubmit={(event) => { event.preventDefault(); send({ answer: text }); }}>
          <input className="grow" data-key="e" required value={text} onChange={(event) => setText(event.target.value)} list={interrupt.id} placeholder={texts.inbox.answer} aria-label={texts.inbox.answer} />
          <datalist id={interrupt.id}>{(properties["answer"]?.examples ?? []).map((one) => <option key={one}>{one}</option>)}</datalist>
          <button className="main" disabled={busy}>{texts.inbox.send}</button>
          <button type="button" disabled={busy} onClick={() => send(null)}>{texts.inbox.skip}</button>
        </form>
      );
    case "budget":
      return (
        <form className="row" onSubmit={(event) => { event.preventDefault(); send({ tokens: Number(text) }); }}>
          <input type="number" data-key="e" min="1" required value={text} onChange={(event) => setText(event.target.value)} placeholder={texts.inbox.tokens} aria-label={texts.inbox.tokens} />
          <button className="main" disabled={busy}>{texts.inbox.grant}</button>
          <button type="button" disabled={busy} onClick={() => send(null)}>{texts.inbox.stop}</button>
        </form>
      );
  }
}

/**
 * Move between the interrupts with j and k, and press what `data-key` names with its key; Escape leaves a field. The
 * focus of an interrupt that was answered goes to the one that takes its place.
 */
function useKeys(list: React.RefObject<HTMLDivElement | null>) {
  useEffect(() => {
    function press(event: KeyboardEvent) {
      const target = event.target as HTMLElement;
      if (document.querySelector("dialog[open]")) return;
      const card = target.closest<HTMLElement>("[data-interrupt]");
      if (event.repeat && event.key !== "j" && event.key !== "k") return; // a held key answers one, not those after it
      if (event.key === "Escape") return card?.focus();
      if (event.ctrlKey || event.metaKey || event.altKey || target.matches("textarea, select, input:not([type=checkbox])")) return;
      const cards = [...(list.current?.querySelectorAll<HTMLElement>("[data-interrupt]") ?? [])];
      const at = cards.findIndex((one) => one === card);
      if (event.key === "j") cards[Math.min(at + 1, cards.length - 1)]?.focus();
      else if (event.key === "k") cards[Math.max(at - 1, 0)]?.focus();
      else {
        const key = CSS.escape(event.key);
        const named = card?.querySelector<HTMLElement>(`[data-key="${key}"]`) ?? document.querySelector<HTMLElement>(`[data-key-all="${key}"]`);
        if (!named) return;
        event.preventDefault();
        if (named.matches("input:not([type=checkbox])")) named.focus();
        else named.click();
      }
    }
    let place = -1;
    function remember(event: FocusEvent) {
      const card = (event.target as HTMLElement).closest("[data-interrupt]");
      place = [...(list.current?.querySelectorAll("[data-interrupt]") ?? [])].findIndex((one) => one === card);
    }
    const watch = new MutationObserver(() => {
      if (document.activeElement !== document.body || place < 0) return;
      const cards = [...(list.current?.querySelectorAll<HTMLElement>("[data-interrupt]") ?? [])];
      cards[Math.min(place, cards.length - 1)]?.focus();
    });
    document.addEventListener("keydown", press);
    document.addEventListener("focusin", remember);
    watch.observe(document.body, { childList: true, subtree: true });
    return () => {
      document.removeEventListener("keydown", press);
      document.removeEventListener("focusin", remember);
      watch.disconnect();
    };
  }, [list]);
}
