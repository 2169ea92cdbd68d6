// Package renderer runs Salt's own Python renderers for the Go master.
//
// Templates (Jinja, #!py, Mako …) and the modules of ext_pillar and master_tops are code of Salt
// and of its users, so they can run only with Salt's library. On first use a Pool starts a nursery,
// a Python process that has imported Salt. The nursery forks workers on demand. The nursery and the
// workers stop when they are idle. A worker serves one session at a time. A session renders for one
// minion and gets its own loaders and options, so that no minion sees values of another minion.
//
// Reactions keeps a session of the master itself open. In that session Salt's reactor determines
// which functions an event calls.
//
// A confined Pool (Config.Confined) renders what nobody has approved: Session.Confined refuses each
// template with an effect, and the kernel keeps its workers from programs, sockets and changes of
// files, see confine.py.
//
// A worker caches the code that Jinja generates from a template's text, see jinjacode.py, and answers
// what is the same for many values without Salt's functions, see quicksalt.py.
// Session.Record also reports what a template read, see reads.py and package memo.
//
// When a worker dies, its request is tried once more. A worker that takes too long is killed. The
// sizes of messages, the memory of a worker, and its log lines are bounded. Callers wait for a
// worker in the order of their arrival. The number of callers is bounded elsewhere: pillar requests
// of minions have a queue (pillar.Service), runners are few, and reactions have a separate worker.
package renderer
