import { visible } from "./basics";

/** The text of a unified diff, with lines that were added and removed in their colours. */
export function Diff({ text }: { text: string }) {
  return (
    <pre tabIndex={0}>
      {visible(text).split("\n").map((line, at) => <span key={at} className={toneOfLine(line)}>{`${line}\n`}</span>)}
    </pre>
  );
}

function toneOfLine(line: string): string {
  if (line.startsWith("+")) return "added";
  return line.startsWith("-") ? "removed" : "";
}
