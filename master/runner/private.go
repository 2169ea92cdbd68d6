package runner

// minions lists the keys with what a master saw of their minions.
const minions = "presence.minions"

// records are those of the audit log, which only who may call it shall read.
const records = "audit.records"

// Private tells of runners, by the name in their events ("runner.test.echo"),
// whose return is for the caller alone, since it holds a secret or is long and
// soon old. It is neither kept in the job cache nor sent to the peers.
func Private(fun string) bool {
	return fun == "runner.cluster.remove" || fun == "runner.cluster.secret" || fun == "runner."+minions || fun == "runner."+records
}

// secret reports whether the return of a runner is a secret, or not for all who may
// read events. It is given to the
// caller in the answer to his request, and to nobody else: others may read the
// events on this host.
func secret(fun string) bool {
	return fun == "cluster.remove" || fun == "cluster.secret" || fun == records
}

// notForAll stands where a secret return was.
const notForAll = "not shown: it is for the caller alone"
