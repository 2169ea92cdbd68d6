package runner

// OfCluster tells of functions that a master in a cluster adds to its table:
//
//	cluster.members  the masters, their state, queues and keys
//	cluster.remove   takes one out for good; returns the new cluster_secret
//	cluster.rotate   replaces the cluster's AES key
//	cluster.secret   what a joining master must show now
func OfCluster(name string) bool {
	switch name {
	case "cluster.members", "cluster.remove", "cluster.rotate", "cluster.secret":
		return true
	}
	return false
}
