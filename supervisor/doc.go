// Package supervisor is `applianced run`: the one process of a node that runs
// as root. It reads the settings, puts the node's files in place, starts the
// master and the load balancer as children, watches whether minions are
// really served, and answers the local API with a status that names causes
// and next steps.
//
// The way in: [New] and [Supervisor.Run] (supervisor.go) load the
// configuration and run one life of the node after another, a new one after
// each reload. life.New says which services there are and what must hold before
// each starts. Below are
//
//	life       the services of one life
//	settings   appliance.yaml
//	layout     directories, generated configuration, checks of keys and options
//	service    start, restart, health, stop order, history
//	childlog   what a child says, bounded
//	probe      ZMTP ping, ports, disk, clock, keys
//	observe    facts every second or two, findings, the status made of them
//	status     the document, its text and JSON
//	api        the unix socket
//	datadisk   the disk for the copy of the volume
//	setup      answers, checks, and the way from nothing to a serving node
//	userdata   where answers may have been given with the machine
//	member     this node's part in its cluster, and what is asked of one that runs
//	recovery   a cluster of its own from the one node that is left
//	nodes      the table of the cluster's nodes
//	nodeapi    how nodes join, and speak with each other
//
// Nothing here speaks Salt beyond the clear `ping`, and nothing waits for
// ever: a file system that hangs is a problem in the status, not a hung
// supervisor.
package supervisor
