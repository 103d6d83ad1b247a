/** Keeps the focus on the page for people who use the keyboard. */

import { useEffect } from "react";

/** Move the focus to the page's content when what had it is gone, and back to what was disabled while it had it. */
export function useKeptFocus(): void {
  useEffect(() => {
    let last: HTMLElement | null = null;
    const note = ({ target }: FocusEvent) => {
      last = target as HTMLElement;
    };
    const keep = (changes: MutationRecord[]) => {
      if (last === null || document.activeElement !== document.body) return;
      if (!last.isConnected) document.getElementById("page")?.focus({ preventScroll: true });
      else if (!last.matches(":disabled") && changes.some(({ target, type }) => type === "attributes" && target === last)) last.focus({ preventScroll: true });
    };
    const observer = new MutationObserver((changes) => queueMicrotask(() => keep(changes))); // a page may have a better place for it
    document.addEventListener("focusin", note);
    observer.observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["disabled"] });
    return () => {
      document.removeEventListener("focusin", note);
      observer.disconnect();
    };
  }, []);
}
