// Package supervisor is `applianced run`: the one process of a node that runs as root. It reads the
// settings, writes the node's files, starts the master and the load balancer as children, watches
// whether minions are really served, and answers the local API with a status that names causes and
// next steps.
//
// [New] and [Supervisor.Run] (supervisor.go) load the configuration and run one life of the node
// after another, a new one after each reload. life.New says which services there are and what must
// hold before each starts. The packages below:
//
//	life       the services of one life
//	settings   appliance.yaml
//	layout     directories, generated configuration, checks of keys and options
//	service    start, restart, health, stop order, history
//	childlog   the children's output, bounded
//	probe      ZMTP ping, ports, disk, clock, keys
//	observe    facts every second or two, findings, the status made from them
//	status     the document, its text and JSON
//	api        the local API on a unix socket
//	datadisk   the disk for the copy of the volume
//	setup      answers, checks, and the steps from nothing to a serving node
//	userdata   answers that were given with the machine
//	member     this node's part in its cluster, and what administrators ask of a member
//	recovery   turns the one node that is left into a new cluster
//	nodes      the table of the cluster's nodes
//	nodeapi    how nodes join, and talk to each other
//
// Nothing here speaks Salt's protocol beyond the clear `ping`, and nothing waits for ever: a file
// system that hangs is a problem in the status, not a hung supervisor.
package supervisor
