// Package service runs the long-lived parts of a node: it starts them when
// what they wait for is there, restarts them with a growing pause when they
// end, watches their health and stops them in the reverse order.
//
// The parts are small on purpose. A [Runner] runs something once and knows nothing of policy. A
// [Backoff] has the pauses between tries. A [Condition] can wait and can describe what it waits for, so
// that a status line reads "waiting for master to answer ping on 127.0.0.1:14506" and never only
// "starting". A [Spec] joins them under a name, and a [Manager] owns one goroutine for each.
//
// The shape is that of Talos' machined (service, runner, restart wrapper, conditions that describe
// themselves, a short event history for each service). Unlike there, the pause between restarts grows,
// and there is no package-level singleton.
package service
