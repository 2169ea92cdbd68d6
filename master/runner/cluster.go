package runner

// OfMaster reports whether every Saltern master adds a function to its table: presence.minions, the
// keys with what this master saw of their minions, audit.records and audit.all, auth.mk_token and
// auth.del_token, the functions about git repositories, and those about the machines.
func OfMaster(name string) bool {
	switch name {
	case minions, records, "schedule.list",
		"audit.all",
		"auth.mk_token", "auth.del_token",
		"git.status", "git.fetch", "git.reload", "git_pillar.update", "cache.clear_git_lock",
		"appliance.status", "appliance.course":
		return true
	}
	return false
}

// OfCluster reports whether a master in a cluster adds a function to its table:
//
//	cluster.members        returns the masters, their state, queues and keys
//	cluster.remove         removes a master for good; returns the new cluster_secret
//	cluster.rotate         replaces the cluster's AES key
//	cluster.secret         returns the secret that a joining master must show now
//	cluster.secret_next    creates the next secret; from then on both are accepted
//	cluster.secret_commit  makes the next secret the only one
func OfCluster(name string) bool {
	switch name {
	case "cluster.members", "cluster.remove", "cluster.rotate",
		"cluster.secret", "cluster.secret_next", "cluster.secret_commit":
		return true
	}
	return false
}
