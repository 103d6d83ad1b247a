/** What a proof says of a case: whether it passed, and which criteria are met. */

import type { Schema } from "../api/client";
import { texts } from "../texts";
import { visible } from "./basics";

/** A case of which nobody could judge anything neither passed nor failed. */
export function Outcome({ of: { passed, counts } }: { of: { passed: boolean; counts?: boolean } }) {
  if (!passed) return <span className="badge bad">{texts.build.failed}</span>;
  return counts === false ? <span className="badge wait">{texts.build.notJudged}</span> : <span className="badge good">{texts.build.passed}</span>;
}

/** A criterion in its words, where they are known, and why it isn't met. */
export function Criterion({ of: { id, met, decided, reason }, text = texts.teams.called(id) }: { of: Schema<"CriterionReport">; text?: string | undefined }) {
  return <>{decided === false ? "?" : met ? "✓" : "✗"} {text} <span className="faint">{visible(reason ?? "")}</span></>;
}
