/** Two runs side by side, the first difference first. */

import { api, type Schema } from "../api/client";
import { Badge, Card, Heading, Loaded, Long, visible } from "../parts/basics";
import { Link, useParams } from "../parts/router";
import { texts } from "../texts";

export default function ComparisonPage() {
  const { id = "", other = "" } = useParams();
  const path = { run_id: id, other_id: other };
  const compared = api.useQuery("get", "/v1/runs/{run_id}/comparison/{other_id}", { params: { path } });
  return (
    <>
      <Heading title={texts.comparison.title} />
      <Loaded of={compared}>
        {({ a, b, text, parts, first_difference }) => (
          <>
            <Card><p>{visible(text)}</p></Card>
            <div className="pair sides">
              {[a, b].map((run) => (
                <Card key={run.run_id}>
                  <Link href={`/runs/${run.run_id}`}>{texts.run.title(run.run_id.slice(-8))}</Link> <Badge state={run.status} />
                </Card>
              ))}
            </div>
            {parts.filter((part) => !part.same).map((part, at) => (
              <Part key={at} part={part} names={[a, b].map((run) => texts.run.title(run.run_id.slice(-8)))} first={part.place === first_difference?.place && part.kind === first_difference.kind} />
            ))}
            <Same parts={parts.filter((part) => part.same)} />
          </>
        )}
      </Loaded>
    </>
  );
}

function titleOf({ kind, place }: Schema<"ComparedPart">): string {
  return kind === place ? kind : `${kind}: ${place}`;
}

function Same({ parts }: { parts: Schema<"ComparedPart">[] }) {
  if (parts.length === 0) return null;
  return (
    <details className="card">
      <summary>{texts.comparison.same(parts.length)}</summary>
      <div className="stack">
        {parts.map((part, at) => <div key={at}><h3>{titleOf(part)}</h3><Long text={part.a ?? ""} /></div>)}
      </div>
    </details>
  );
}

/** In a narrow window, where the sides stand below each other, each has the name of its run. */
function Part({ part, names, first }: { part: Schema<"ComparedPart">; names: string[]; first: boolean }) {
  const title = titleOf(part);
  return (
    <Card title={first ? `${title} – ${texts.comparison.first}` : title} tone={first ? "failed" : ""}>
      <div className="pair">
        {[part.a, part.b].map((side, at) => (
          <div key={at} className="side" data-label={names[at]}>{side === null ? <p className="faint">{texts.comparison.absent}</p> : <Long text={side} />}</div>
        ))}
      </div>
    </Card>
  );
}
