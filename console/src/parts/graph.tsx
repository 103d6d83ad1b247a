/** Graphs as SVG. Where nodes stand is computed by the platform: `column` and `row` begin at 0. */

import { toneOf } from "./basics";

export interface GraphNode {
  id: string;
  title: string;
  under: string;
  state: string;
  column: number;
  row: number;
}

const [WIDTH, HEIGHT, ACROSS, DOWN, LETTERS] = [170, 44, 220, 64, 22];

/** Nodes in columns, with an edge from each node to those that depend on it. */
export function Layers({ nodes, edges, label }: { nodes: GraphNode[]; edges: [string, string][]; label: string }) {
  const at = new Map(nodes.map((node) => [node.id, { x: node.column * ACROSS + 4, y: node.row * DOWN + 4, node }]));
  const wide = Math.max(...nodes.map((node) => node.column)) * ACROSS + WIDTH + 8;
  const high = Math.max(...nodes.map((node) => node.row)) * DOWN + HEIGHT + 8;
  return (
    <div className="wide" tabIndex={0} role="region" aria-label={label}>
      <svg className="graph" viewBox={`0 0 ${wide} ${high}`} style={{ maxWidth: wide, minWidth: Math.min(wide, 480) }} role="img" aria-label={label}>
        {edges.map(([from, to]) => {
          const [start, end] = [at.get(from), at.get(to)];
          if (!start || !end) return null;
          const [x, y, right, below] = [start.x + WIDTH, start.y + HEIGHT / 2, end.x, end.y + HEIGHT / 2];
          const middle = (x + right) / 2;
          const live = end.node.state === "running" ? "live" : "";
          return <path key={`${from} ${to}`} className={`edge ${live}`} d={`M${x} ${y} C${middle} ${y} ${middle} ${below} ${right} ${below}`} />;
        })}
        {[...at.values()].map(({ x, y, node }) => (
          <g key={node.id} className={`node ${toneOf(node.state)}`} transform={`translate(${x} ${y})`}>
            <title>{`${node.title}: ${node.state}`}</title>
            <rect width={WIDTH} height={HEIGHT} rx="6" />
            <text x="8" y="19">{cut(short(node.title))}</text>
            <text x="8" y="35" className="under">{cut(node.under)}</text>
          </g>
        ))}
      </svg>
    </div>
  );
}

/** A node in the middle, and others around it, the first one above; an agent at work is lit. */
export function Star({ centre, around, label }: { centre: { title: string; state: string }; around: { title: string; state: string }[]; label: string }) {
  const places = around.map((node, at) => {
    const angle = (2 * Math.PI * at) / around.length - Math.PI / 2;
    return { node, x: 260 + 190 * Math.cos(angle), y: 130 + 95 * Math.sin(angle) };
  });
  return (
    <svg className="graph star" viewBox={`0 0 520 ${Math.max(182, ...places.map(({ y }) => y + 47))}`} style={{ maxWidth: 620 }} role="img" aria-label={label}>
      {places.map(({ node, x, y }) => (
        <line key={node.title} className={`edge ${node.state === "running" ? "live" : ""}`} x1="260" y1="130" x2={x} y2={y} />
      ))}
      <Body x={260} y={130} radius={26} title={centre.title} state={centre.state} />
      {places.map(({ node, x, y }) => <Body key={node.title} x={x} y={y} radius={15} title={node.title} state={node.state} />)}
    </svg>
  );
}

function Body({ x, y, radius, title, state }: { x: number; y: number; radius: number; title: string; state: string }) {
  return (
    <g className={`node ${toneOf(state)}`}>
      <title>{`${title}: ${state}`}</title>
      <circle cx={x} cy={y} r={radius} />
      <text x={x} y={y + radius + 14} textAnchor="middle">{cut(short(title))}</text>
    </g>
  );
}

/** Specialists of servers are named as their server: the title has the whole name. */
function short(name: string): string {
  return name.replace(/^mcp_agent_/, "");
}

function cut(text: string): string {
  return text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text;
}
