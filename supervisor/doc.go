// Package supervisor is `applianced run`: the one process of a node that runs
// as root. It reads the settings, puts the node's files in place, starts the
// master and the load balancer as children, watches whether minions are
// really served, and answers the local API with a status that names causes
// and next steps.
//
// The way in: [New] and [Supervisor.Run] (supervisor.go) load the
// configuration and run one node at a time, a new one after each reload.
// node.go says which services there are and what must hold before each
// starts; observe.go gathers facts every second or two; findings.go turns
// facts into problems and is a pure function. member.go is this node's part in
// its cluster, daytwo.go what is done to one that runs. Below are
//
//	settings   appliance.yaml
//	layout     directories, generated configuration, checks of keys and options
//	service    start, restart, health, stop order, history
//	childlog   what a child says, bounded
//	probe      ZMTP ping, ports, disk, clock, keys
//	status     the document, its text and JSON
//	api        the unix socket
//	datadisk   the disk for the copy of the volume
//	setup      answers, checks, and the way from nothing to a serving node
//	userdata   where answers may have been given with the machine
//	nodes      the table of the cluster's nodes
//	nodeapi    how nodes join, and speak with each other
//
// Nothing here speaks Salt beyond the clear `ping`, and nothing waits for
// ever: a file system that hangs is a problem in the status, not a hung
// supervisor.
package supervisor
