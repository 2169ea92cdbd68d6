// Package renderer runs Salt's own Python renderers for the Go master.
//
// Templates (Jinja, #!py, Mako …), ext_pillar and master_tops modules are code of Salt and of its
// users, so they run only inside Salt's library. A Pool starts a nursery process on first use (a
// Python that has imported Salt), which forks workers on demand. Both stop when they are idle. One
// worker serves one session at a time, and a session is one minion: it gets its own loaders and
// options, so that no minion sees values of another.
//
// Reactions is such a session of the master itself, which stays open: Salt's reactor reads there
// which functions an event calls.
//
// A worker caches the code that Jinja makes of a template's text, see jinjacode.py. Session.Record
// also reports what a template read, see reads.py and package memo.
//
// When a worker dies, its request is tried once more. A worker that takes too long is killed.
// Messages, the memory of a worker, and its log lines are bounded. Callers wait for a worker in the
// order in which they came. The callers bound their own number: the questions of minions have a
// queue (pillar.Service), runners are few, and reactions have a separate worker.
package renderer
