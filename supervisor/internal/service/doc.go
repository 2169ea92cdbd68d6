// Package service runs the long-lived parts of a node. It starts each part when the conditions of
// the part hold, restarts it with a growing pause when it ends, watches its health, and stops all
// parts in the reverse order.
//
// The types are small on purpose. A [Runner] runs something once and contains no policy. A
// [Backoff] determines the pauses between runs. A [Condition] can wait and can describe what it
// waits for, so that a status line reads "waiting for master to answer ping on 127.0.0.1:14506" and
// never only "starting". A [Spec] combines these under a name, and a [Manager] owns one goroutine
// for each Spec.
//
// The design is that of Talos' machined (service, runner, restart wrapper, conditions that describe
// themselves, a short event history for each service). Unlike in machined, the pause between
// restarts grows, and there is no package-level singleton.
package service
