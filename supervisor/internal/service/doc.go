// Package service runs the long-lived parts of a node: it starts each part when what the part waits
// for is available, restarts it with a growing pause when it ends, watches its health, and stops
// all parts in the reverse order.
//
// The types are small on purpose. A [Runner] runs something once and knows nothing of policy. A
// [Backoff] has the pauses between runs. A [Condition] can wait and can describe what it waits for,
// so that a status line reads "waiting for master to answer ping on 127.0.0.1:14506" and never only
// "starting". A [Spec] joins them under a name, and a [Manager] owns one goroutine for each.
//
// The design is that of Talos' machined (service, runner, restart wrapper, conditions that describe
// themselves, a short event history for each service). Unlike there, the pause between restarts
// grows, and there is no package-level singleton.
package service
