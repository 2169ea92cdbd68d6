// Package audit keeps the record of who did what, and from where. Each program writes the acts made
// through it to files of its own node, as lines of JSON, before it carries them out. To show the
// records of all nodes, a node fetches those of the other nodes.
//
// A folder holds several kinds of files ([shelf]), divided by who can cause their records: acts of
// administrators, jobs of root, acts of limited users, refusals, and records that anybody who
// reaches a port can cause. Each kind is bounded in bytes and age: its oldest files are removed.
// Limited users and unauthenticated senders (strangers) have rate limits, so that they cannot push
// out older acts.
//
// The records of each kind form a chain of hashes (chain.go), and other nodes record where the
// chain ends (heads.go). [Verify] finds records that are missing or were changed.
//
// Several programs of one account may write to one folder at the same time (the master and
// salt-key). The folder must be on a local disk, because the package locks files (flock), and no
// such locks may be taken on the shared volume.
//
// Untrusted text is bounded and made safe when a record is written, and again when it is read,
// because the account of the master owns its files and may be hostile. docs/decisions/0015-audit.md
// states the guarantees.
package audit
