package runner

// OfMaster reports whether every Saltern master adds a function to its table: presence.minions, the
// keys with what this master saw of their minions, audit.records and audit.all, auth.mk_token and
// auth.del_token, the functions about git repositories, and those about the machines.
func OfMaster(name string) bool {
	switch name {
	case minions, records, "schedule.list", "audit.all", "auth.mk_token", "auth.del_token", "git.status", "git.fetch", "git.reload", "git_pillar.update", "cache.clear_git_lock", "appliance.status", "appliance.course":
		return true
	}
	return false
}

// OfCluster tells of functions that a master in a cluster adds to its table:
//
//	cluster.members  the masters, their state, queues and keys
//	cluster.remove   takes one out for good; returns the new cluster_secret
//	cluster.rotate   replaces the cluster's AES key
//	cluster.secret   what a joining master must show now
//	cluster.secret_next    makes the next one; both are taken from then on
//	cluster.secret_commit  has it take the place of the present one
func OfCluster(name string) bool {
	switch name {
	case "cluster.members", "cluster.remove", "cluster.rotate", "cluster.secret", "cluster.secret_next", "cluster.secret_commit":
		return true
	}
	return false
}
