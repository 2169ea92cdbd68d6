// Package explain answers what this master knows of a minion, and why the minion does not answer.
//
//	keys, connections of all nodes, sign-ins, refused requests ─┐
//	saltutil.running, which the minion is asked for            ├─> facts ──> causesOf (pure) ──> causes, with the next step
//	jobs that it has not answered, problems of the master      ─┘
//	last runs, top files, pillar, nodegroups, rights, silences ─────> the rest of the [control.Explanation]
//
// An explanation has names and times: no values of pillars, no arguments, no returns.
//
// Bounds: maxAtOnce explanations at a time; others wait, at most so long that their parts have time. Each part of an
// explanation has a time of its own, after which the explanation lacks it and says so.
package explain
