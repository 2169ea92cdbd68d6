package runner

// OfMaster reports whether a function needs a running master: every Saltern master adds it to its
// table of runners.
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

// OfCluster reports whether a function needs a cluster: a master in one adds it to its table of
// runners:
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
