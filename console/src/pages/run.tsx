/** One run, live: the star at work, its plan, what was called and judged, the answer with its sources, and the cause. */

import { useState } from "react";

import { api, fetcher, type Schema } from "../api/client";
import { useRunEvents } from "../api/events";
import { Action, useAction } from "../parts/action";
import { Badge, Card, Dialog, duration, Elapsed, Empty, Heading, Json, json, Loaded, Long, ProblemCard, Table, visible, When } from "../parts/basics";
import { useMay } from "../parts/caller";
import { Layers, Star } from "../parts/graph";
import { Criterion, Outcome } from "../parts/proof";
import { Link, go, useParams } from "../parts/router";
import { Waterfall } from "../parts/waterfall";
import { texts } from "../texts";
import { InterruptCard, Refused } from "./inbox";

type Document = Schema<"RunDocument">;
type Task = Omit<Schema<"TaskRecord">, "status"> & { status: string };
type Result = Partial<Schema<"Done">>;

const ENDED = new Set(["succeeded", "failed", "cancelled", "budget_exhausted", "parked"]);
const NOT_BEGUN = new Set(["pending", "not_reached"]);
const INCLUDE = { include: "tasks,calls,prompts" };

export default function RunPage() {
  const { id = "" } = useParams();
  const run = api.useQuery("get", "/v1/runs/{run_id}", { params: { path: { run_id: id }, query: INCLUDE } });
  const ended = run.data !== undefined && ENDED.has(run.data.status);
  const draft = useRunEvents(id, ended || run.data === undefined, run.refetch);
  return <Loaded of={run} title={texts.run.title(id.slice(-8))}>{(document) => <Run run={document} draft={draft} />}</Loaded>;
}

function Run({ run, draft }: { run: Document; draft: string }) {
  const open = run.interrupts.filter((one) => one.state === "open");
  const waiting = new Set(open.map((one) => one.path.split("/")[0]));
  const ended = ENDED.has(run.status);
  const tasks = run.tasks.map((task) => {
    const status = waiting.has(task.path) ? "waiting" : ended && task.status === "pending" ? "not_reached" : task.status;
    return { ...task, status };
  });
  const result = (run.result ?? {}) as Result;
  const [refused, setRefused] = useState<unknown>(null);
  return (
    <>
      <Head run={run} ended={ended} />
      {ended && run.status !== "succeeded" ? <Causes run={run.run_id} /> : null}
      <Refused error={refused} />
      {open.map((one) => <InterruptCard key={one.id} interrupt={one} onRefused={setRefused} />)}
      <Answer run={run} result={result} draft={draft} ended={ended} />
      <Work run={run} tasks={tasks} />
      {ended && run.status === "succeeded" && (result.degraded ?? []).length > 0 ? <Causes run={run.run_id} /> : null}
      <Changes changes={result.effects ?? []} />
      <Builds builds={run.builds} />
      <Tasks tasks={tasks} />
      <Waterfall run={run} />
      <Notices notices={run.notices} />
    </>
  );
}

function Head({ run, ended }: { run: Document; ended: boolean }) {
  const admin = useMay("admin");
  const [forking, setForking] = useState(false);
  const from = run.forked_from?.["run"] as string | undefined;
  const { mode, channel, agent } = run.config as { mode?: string; channel?: string; agent?: string };
  return (
    <>
      <Heading title={texts.run.title(run.run_id.slice(-8))}>
        <div className="row">
          <Badge state={run.status} />
          <span className="faint">
            {run.ended_at ? duration((Date.parse(run.ended_at) - Date.parse(run.created_at)) / 1000) : <Elapsed time={run.created_at} />}
          </span>
          {!ended ? <Action label={texts.run.cancel} ask={texts.run.cancelSure} run={() => fetcher.POST("/v1/runs/{run_id}/cancel", { params: { path: { run_id: run.run_id } } })} /> : null}
          {ended ? <button onClick={() => setForking(true)}>{texts.run.fork}</button> : null}
        </div>
      </Heading>
      {forking ? <ForkDialog run={run} onClose={() => setForking(false)} /> : null}
      <Card>
        <div className="stack">
          <p className="answer">{run.input}</p>
          <dl>
            <dt>{texts.run.thread}</dt>
            <dd><Link href={`/threads/${encodeURIComponent(run.thread_id)}`}>{run.thread_id}</Link></dd>
            <dt>{texts.run.epoch}</dt>
            <dd>{admin ? <Link href={`/registry?epoch=${run.epoch}`}>{run.epoch}</Link> : run.epoch}</dd>
            <dt>{texts.ask.mode}</dt>
            <dd>{[agent, mode, channel].filter(Boolean).join(", ")}</dd>
            <dt>{texts.runs.when}</dt>
            <dd><When time={run.created_at} /></dd>
            {from === undefined ? null : (
              <>
                <dt>{texts.run.forkOf}</dt>
                <dd><Link href={`/runs/${from}`}>{texts.run.title(from.slice(-8))}</Link>, {texts.run.forkAt} {String(run.forked_from?.["at"])}</dd>
              </>
            )}
            {run.behind ? (
              <>
                <dt>{texts.run.behind}</dt>
                <dd><Link href={`/runs/${run.behind.run_id}`}>{texts.run.title(run.behind.run_id.slice(-8))}</Link> <Badge state={run.behind.status} /></dd>
              </>
            ) : null}
          </dl>
          <Compare run={run} from={from} />
        </div>
      </Card>
    </>
  );
}

const OTHER = "other";

/** The runs of the thread, which forks are on, too, and any other by its id; listed once somebody wants to compare. */
function Compare({ run, from = "" }: { run: Document; from?: string | undefined }) {
  const [open, setOpen] = useState(false);
  const [other, setOther] = useState(from);
  const [id, setId] = useState("");
  const query = { thread_id: run.thread_id, limit: 50 };
  const runs = api.useQuery("get", "/v1/runs", { params: { query } }, { enabled: open });
  const near = (runs.data?.runs ?? []).filter((one) => one.run_id !== run.run_id);
  const chosen = other || (near[0]?.run_id ?? OTHER);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{texts.run.compareAsk}</summary>
      <form className="row" onSubmit={(event) => { event.preventDefault(); go(`/runs/${run.run_id}/with/${chosen === OTHER ? id.trim() : chosen}`); }}>
        <select className="grow" value={chosen} onChange={(event) => setOther(event.target.value)} aria-label={texts.run.compareWith}>
          {near.map((one) => (
            <option key={one.run_id} value={one.run_id}>{`${one.input.slice(0, 60)} – ${new Date(one.created_at).toLocaleTimeString()}, ${texts.state[one.status] ?? one.status}`}</option>
          ))}
          <option value={OTHER}>{texts.run.compareOther}</option>
        </select>
        {chosen === OTHER ? <input required className="grow" value={id} onChange={(event) => setId(event.target.value)} aria-label={texts.run.compareId} placeholder={texts.run.compareId} /> : null}
        <button>{texts.run.compare}</button>
      </form>
    </details>
  );
}

const START = "start";

/** A fork begins at the request, at a decision or at a task; what it inherits is not done again. */
function ForkDialog({ run, onClose }: { run: Document; onClose: () => void }) {
  const [at, setAt] = useState(START);
  const [input, setInput] = useState(run.input);
  const decisions = run.decisions.filter((call) => /^supervisor\/\d+$/.test(call.path)).map((call) => `d${call.path.split("/")[1]}`);
  const places = [...new Set([...decisions, ...run.tasks.filter((task) => task.star === "").map((task) => task.path.split(".")[0] ?? "")])];
  const [live, setLive] = useState(false);
  const fork = useAction(async () => {
    const changes = at === START && input !== run.input ? { input } : {};
    const { mode, channel, limits } = run.config; // a fork may do what its run was allowed to
    const body = { at, live, changes, mode, channel, limits } as unknown as Schema<"ForkRequest">;
    const { data, error } = await fetcher.POST("/v1/runs/{run_id}/fork", { params: { path: { run_id: run.run_id } }, body });
    if (data) go(`/runs/${data.run_id}`);
    return error ? { error } : {};
  });
  return (
    <Dialog title={texts.run.fork} onClose={onClose}>
      <form className="stack" onSubmit={(event) => { event.preventDefault(); fork.mutate(); }}>
        <label>
          {texts.run.forkAt}
          <select value={at} onChange={(event) => setAt(event.target.value)}>
            <option value={START}>{texts.run.forkBeginning}</option>
            {places.map((place) => <option key={place} value={place}>{`${place} ${run.tasks.find((task) => task.path === place)?.text.slice(0, 80) ?? ""}`}</option>)}
          </select>
        </label>
        {at === START ? (
          <label>
            {texts.runs.request}
            <textarea required value={input} onChange={(event) => setInput(event.target.value)} />
          </label>
        ) : null}
        <label className="row">
          <input type="checkbox" checked={live} onChange={(event) => setLive(event.target.checked)} /> {texts.run.forkLive}
        </label>
        {fork.error ? <ProblemCard error={fork.error} /> : null}
        <div className="row">
          <button className="main" disabled={fork.isPending}>{texts.run.fork}</button>
          <button type="button" onClick={onClose}>{texts.close}</button>
        </div>
      </form>
    </Dialog>
  );
}

function Causes({ run }: { run: string }) {
  const explained = api.useQuery("get", "/v1/runs/{run_id}/explanation", { params: { path: { run_id: run } } });
  return (
    <Loaded of={explained}>
      {({ causes, look_at }) =>
        causes.length === 0 ? null : (
          <Card title={texts.run.cause} tone="failed"><div className="stack">
            <ol>{causes.map((cause) => <li key={cause.text}>{visible(cause.text)} <code>{cause.code}</code></li>)}</ol>
            <List title={texts.run.lookAt} items={look_at.map((note) => visible(note.text))} />
          </div></Card>
        )
      }
    </Loaded>
  );
}

function Answer({ run, result, draft, ended }: { run: Document; result: Result; draft: string; ended: boolean }) {
  const [shown, setShown] = useState<Schema<"Citation"> | null>(null);
  const citations = result.citations ?? [];
  if (!ended) {
    if (draft === "") return null;
    return (
      <Card title={texts.run.writing}>
        <p className="answer" aria-live="polite">{draft}</p>
      </Card>
    );
  }
  return (
    <Card title={texts.run.answer}>
      <div className="stack">
        <p className="answer">{linked(run.status === "succeeded" ? (result.reply ?? "") : visible(result.reply ?? ""), citations, setShown)}</p>
        {run.why ? <p>{visible(run.why.message)} <code>{run.why.code}</code></p> : null}
        <List title={texts.run.sources} items={citations.map((one) => (
          <button key={one.id} className="plain" onClick={() => setShown(one)}>{`[${one.id}] ${one.agent}: ${one.tools.join(", ") || one.task_id}`}</button>
        ))} />
        <List title={texts.run.assumptions} items={result.assumptions ?? []} />
        <List title={texts.run.missing} items={run.status === "failed" ? [] : (result.degraded ?? []).map((one) => visible(`${one.part} – ${one.reason}`))} />
      </div>
      {shown === null ? null : <Source citation={shown} run={run} onClose={() => setShown(null)} />}
    </Card>
  );
}

/** The text with a button in place of each `[n]` that names a source. */
function linked(reply: string, citations: Schema<"Citation">[], show: (citation: Schema<"Citation">) => void) {
  return reply.split(/(\[\d+\])/).map((piece, at) => {
    const citation = at % 2 === 1 ? citations.find((one) => `[${one.id}]` === piece) : undefined;
    if (citation === undefined) return piece;
    return <button key={at} className="plain" aria-label={texts.run.source(citation.id)} onClick={() => show(citation)}>{piece}</button>;
  });
}

/** The results that were cited, with the excerpts marked in them; those of artifacts stand alone. */
function Source({ citation, run, onClose }: { citation: Schema<"Citation">; run: Document; onClose: () => void }) {
  const made = run.tasks.flatMap((task) => task.attempts.flatMap((attempt) => attempt.calls));
  const excerpts = citation.excerpts ?? []; // a result has none where there are none
  return (
    <Dialog title={texts.run.source(citation.id)} onClose={onClose}>
      <p>{citation.agent}, {citation.task_id}</p>
      {(citation.calls ?? []).map((cited) => {
        const call = made.find((one) => one.id === cited.call_id);
        const inResult = excerpts.filter((one) => one.call_id === cited.call_id && !one.artifact);
        return (
          <figure key={cited.call_id}>
            <figcaption><code>{cited.tool} {call ? json(call.args) : ""}</code></figcaption>
            {call ? <pre tabIndex={0}>{marked(call.result, inResult)}</pre> : null}
            {call?.artifact ? <Artifact run={run.run_id} artifact={call.artifact} /> : null}
          </figure>
        );
      })}
      {excerpts.filter((one) => one.artifact).map((one, at) => (
        <figure key={at}>
          <Long text={one.text} />
          <figcaption className="faint">{texts.run.characters(one.start, one.end)}</figcaption>
        </figure>
      ))}
      <form method="dialog"><button data-first="">{texts.close}</button></form>
    </Dialog>
  );
}

/** Saves an artifact as a file: a link can't send the token that reading it needs. */
function Artifact({ run, artifact }: { run: string; artifact: string }) {
  async function save() {
    const path = { run_id: run, artifact };
    const { data, error } = await fetcher.GET("/v1/runs/{run_id}/artifacts/{artifact}", { params: { path }, parseAs: "blob" });
    if (error) return { error };
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(data as Blob), download: artifact });
    link.click();
    URL.revokeObjectURL(link.href);
    return {};
  }
  return <Action label={texts.run.artifact} run={save} />;
}

const AROUND = 4_000; // characters that are shown around the first excerpt

/** Excerpts are found by their text: their places count characters, and a text's here are UTF-16 units, which are more. */
function marked(text: string, excerpts: Schema<"Excerpt">[]) {
  const found = excerpts.map((one) => ({ start: text.indexOf(one.text, one.start), length: one.text.length }));
  const sorted = found.filter((one) => one.start >= 0).toSorted((one, other) => one.start - other.start);
  let at = Math.max(0, (sorted[0]?.start ?? 0) - AROUND);
  const end = at + 2 * AROUND;
  const pieces: React.ReactNode[] = [at > 0 ? "… " : ""];
  for (const { start, length } of sorted) {
    const stop = start + length;
    if (start < at || stop > end) continue;
    pieces.push(text.slice(at, start), <mark key={start}>{text.slice(start, stop)}</mark>);
    at = stop;
  }
  pieces.push(text.slice(at, end), end < text.length ? " …" : "");
  return pieces;
}

function List({ title, items }: { title: string; items: React.ReactNode[] }) {
  if (items.length === 0) return null;
  return (
    <div>
      <h3>{title}</h3>
      <ul>{items.map((item, at) => <li key={at}>{item}</li>)}</ul>
    </div>
  );
}

function Work({ run, tasks }: { run: Document; tasks: Task[] }) {
  const main = tasks.filter((task) => task.star === "");
  const agents = [...Map.groupBy(main, (task) => task.agent)].map(([title, its]) => ({ title, state: stateOf(its) }));
  const supervisor = run.status === "running" && agents.some((one) => one.state === "running") ? "pending" : run.status;
  const stars = [...Map.groupBy(tasks, (task) => task.star)];
  if (tasks.length === 0) return <Empty>{ENDED.has(run.status) ? texts.run.noTasks : texts.run.noPlan}</Empty>;
  return (
    <div className="pair">
      <Card title={texts.run.star}>
        <Star centre={{ title: texts.run.supervisor, state: supervisor }} around={agents} label={texts.run.starLabel} />
      </Card>
      <Card title={texts.run.plan}>
        <div className="stack">
          {stars.map(([star, its]) => <Plan key={star} star={star} tasks={its} />)}
          {run.plans.length === 0 ? null : <Why plans={run.plans} />}
        </div>
      </Card>
    </div>
  );
}

/** An agent waits or works if one of its tasks does; else it stands as the last one that began. */
function stateOf(tasks: { status: string }[]): string {
  const found = ["waiting", "running"].find((state) => tasks.some((task) => task.status === state));
  return found ?? tasks.findLast((task) => !NOT_BEGUN.has(task.status))?.status ?? "pending";
}

function Plan({ star, tasks }: { star: string; tasks: Task[] }) {
  const nodes = tasks.map((task) => ({
    id: task.path, title: task.agent, under: task.text, state: task.status, column: task.column, row: task.row,
  }));
  const edges = tasks.flatMap((task) => task.depends_on.map((on): [string, string] => [firstTry(tasks, on), task.path]));
  return (
    <>
      {star === "" ? null : <h3>{star}</h3>}
      <Layers nodes={nodes} edges={edges} label={texts.run.planLabel} />
    </>
  );
}

/** The path of the first try of a task: `t1` or `t3/t1`; later ones end in `.2`, `.3`. */
function firstTry(tasks: Task[], id: string): string {
  return tasks.find((task) => task.path.split("/").at(-1)?.split(".")[0] === id)?.path ?? id;
}

function Why({ plans }: { plans: Schema<"PlanVersion">[] }) {
  return (
    <details>
      <summary>{texts.run.planVersions(plans.length)}</summary>
      <ol>
        {plans.map((plan) => (
          <li key={plan.seq}>
            {plan.thought_process}
            <ul>{plan.changes.map((change, at) => <li key={at}><code>{Object.values(change).filter(Boolean).join(" · ")}</code></li>)}</ul>
          </li>
        ))}
      </ol>
    </details>
  );
}

function Changes({ changes }: { changes: Schema<"Change">[] }) {
  if (changes.length === 0) return null;
  return (
    <Card title={texts.run.changed}>
      <ul className="stack">
        {changes.map((change) => (
          <li key={change.call_id}>
            <code>{`${change.name} ${json(change.args)}`}</code> <Badge state={change.state} />{" "}
            {change.effect === "unsafe" ? <span className="badge wait">{texts.run.unsafe}</span> : null}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Tasks({ tasks }: { tasks: Task[] }) {
  if (tasks.length === 0) return null;
  return (
    <Card title={texts.run.asTable}>
      <Table
        label={texts.run.asTable}
        columns={[texts.run.task, texts.run.agent, texts.run.status, texts.run.attempts]}
        rows={tasks.map((task) => ({
          key: task.path,
          cells: [
            <><strong>{task.path}</strong> {task.text}</>,
            task.agent,
            <><Badge state={task.status} /> {task.code ? <code>{task.code}</code> : null}</>,
            <Attempts task={task} />,
          ],
        }))}
      />
    </Card>
  );
}

function Attempts({ task }: { task: Task }) {
  return (
    <>
      {task.attempts.map((attempt) => (
        <details key={attempt.number}>
          <summary>
            {texts.run.attempt(attempt.number)} {attempt.verdict ? <Badge state={attempt.verdict.status} /> : null}{" "}
            · {texts.run.callCount(attempt.calls.length)}
          </summary>
          <div className="stack">
            {attempt.verdict ? <ul>{attempt.verdict.reasons.map((reason) => <li key={reason}>{visible(reason)}</li>)}</ul> : null}
            {attempt.calls.map((call) => <CallDetails key={call.id} call={call} />)}
            {attempt.text === "" ? null : <Long text={attempt.text} />}
          </div>
        </details>
      ))}
    </>
  );
}

function CallDetails({ call }: { call: Schema<"Call"> }) {
  return (
    <details>
      <summary>
        <code>{call.name}</code> <Badge state={call.state || call.status || "running"} /> {call.effect}
        {call.ms == null ? null : ` ${duration(call.ms / 1000)}`}
      </summary>
      <Json value={call.args} />
      {call.result === "" ? null : <Long text={call.result} />}
    </details>
  );
}

/** What the architect designed, checked, proved and published, as it happens. */
function Builds({ builds }: { builds: Document["builds"] }) {
  if (builds.length === 0) return null;
  return (
    <Card title={texts.run.build}>
      <ol className="stack" aria-live="polite">
        {builds.map((build, at) => <li key={at}><Build event={build as unknown as BuildEvent} /></li>)}
      </ol>
    </Card>
  );
}

type BuildEvent = Schema<"Design"> | Schema<"Checks"> | Schema<"Proof"> | Schema<"Published">;

function Build({ event }: { event: BuildEvent }) {
  switch (event.type) {
    case "design":
      return (
        <>
          <strong>{texts.build.design(event.attempt)}</strong> {event.team}: {event.purpose}
          <ul>
            {event.members.map((one) => <li key={one.name}>{one.name} – {one.role} <code>{[one.team, ...(one.tools ?? [])].filter(Boolean).join(", ")}</code></li>)}
            {(event.missing ?? []).map((one) => <li key={one.part}><span className="badge bad">{texts.run.missing}</span> {one.part}</li>)}
          </ul>
        </>
      );
    case "checks":
      return (
        <>
          <strong>{texts.build.checks}</strong> {event.findings.length === 0 ? texts.build.sound : null}
          <ul>{event.findings.map((one, at) => <li key={at}><code>{one.path}</code> {one.reason} {one.remedy}</li>)}</ul>
        </>
      );
    case "proof":
      return (
        <>
          <strong>{texts.build.proof(event.case)}</strong> <Outcome of={event} />{" "}
          {texts.build.calls(event.live, event.fixture, event.simulated)}
          <ul>{event.criteria.filter((one) => !one.met).map((one) => <li key={one.id}><Criterion of={one} /></li>)}</ul>
        </>
      );
    case "published":
      return (
        <>
          <strong>{texts.build.published}</strong> <Link href={`/teams/${encodeURIComponent(event.team)}?version=${event.version}`}>{event.team} {event.version}</Link> <Badge state={event.state} />
        </>
      );
  }
}

function Notices({ notices }: { notices: Schema<"Notice">[] }) {
  if (notices.length === 0) return null;
  return (
    <Card title={texts.run.warnings}>
      <ul>{notices.map((notice) => <li key={notice.seq}><code>{notice.code}</code> {visible(notice.message)}</li>)}</ul>
    </Card>
  );
}
