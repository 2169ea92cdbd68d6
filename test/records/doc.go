// Package records holds the simulation of what a cluster remembers of its nodes: the
// table of nodes, which supervisors change, and the masters' record. It runs the real
// decisions of both on virtual time; see the test.
package records
