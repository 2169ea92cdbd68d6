package master

import "saltern/master/msgpack"

// secretRunner tells of runners whose return is for the caller alone, since it
// holds a secret or is long and soon old. It is neither kept in the job cache
// nor sent to the peers.
func secretRunner(fun string) bool {
	return fun == "runner.cluster.remove" || fun == "runner.cluster.secret" || fun == "runner."+minionsRunner
}

// secretReturn reports whether the return of a runner is a secret. It is given
// to the caller in the answer to his request, and to nobody else: others may
// read the events on this host.
func secretReturn(fun string) bool { return fun == "cluster.remove" || fun == "cluster.secret" }

// shownRun is what the event of a runner that has ended says.
func shownRun(fun string, data *msgpack.Map) *msgpack.Map {
	if !secretReturn(fun) || !data.Bool("success") {
		return data
	}
	data = data.Clone()
	data.Set("return", notForAll)
	return data
}

// notForAll stands where a secret return was.
const notForAll = "not shown: it is for the caller alone"
