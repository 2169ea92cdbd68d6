// Package renderer runs Salt's own Python renderers for the Go master.
//
// Templates (Jinja, #!py, Mako …), ext_pillar and master_tops modules are
// code of Salt and of its users, so they run in Salt's library and nowhere
// else. A Pool starts a nursery process on first use (a Python that imported
// Salt), which forks workers on demand; both stop when they are idle. One
// worker serves one session at a time, and a session is one minion: loaders
// and options are made anew for it, so that no minion sees what belongs to
// another.
//
// Reactions is such a session that stays open, of the master's own: Salt's reactor
// reads there what events ask for.
//
// The code that Jinja makes of a template's text is kept by the worker, see jinjacode.py.
//
// Session.Record also says what a template read, see reads.py and package memo.
//
// A worker that dies costs the request that ran in it one retry; one that
// takes too long is killed. Bounded are messages, memory of a worker, and the log
// lines it may write. Callers wait for a worker in the order in which they came; how
// many there may be is their own affair: the questions of minions have a queue
// (pillar.Service), runners are few, and reactions have a worker besides.
package renderer
