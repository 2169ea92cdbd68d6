// Package diff finds what another ref, commit or folder would change in the pillars and states of the
// minions: the runners pillar.diff and top.diff.
//
// Both sides are compiled by the master's own compiler (package pillar) for each minion, from the
// grains in the cache: what is served now or another ref, against a ref or a folder. Each side has a
// compiler of its own with its own memo and its own directories, so nothing of one side, and nothing
// that is served, mixes with the other. Nothing is written into caches, the mine, jobs or events.
//
// A ref that nobody has approved must not run code on the master. Unless the administrator trusts
// all refs (saltern_diff_trusted), templates are only recorded (renderer.Session.Confined): a
// template that calls a function with an effect is refused and named in the report. Secrets are
// not opened, and what looks like a secret is compared but not shown, see mask.
//
// The runner pillar.readers searches what is served with the same means: which minions get a key, a file
// or a secret.
//
// Only one comparison or search runs at a time, a few more wait. It has renderers of its own, which run at a
// lower priority and within bounds of time and memory, and which end with it.
package diff
