// Package adopt imports the data of a Salt master in Python to an appliance: the key that its minions
// know, their keys in all states, the administrator's options, states, pillars, the lists that accept
// minions, the keys that decrypt secrets in pillars, and what another Saltern has saved as targets, jobs
// and schedules.
//
// [Look] reads a tree of files, checks it completely, compares it with the node, and writes nothing.
// [Plan.Apply] puts the files in place:
//
//	folder, or tar → Unpack → Tree → Look: options, keys, roots → Plan → Apply
//	                                     (the node's storage is compared)   ↓
//	                           stage (.import-…) → backup.Place, file by file
//
// The tree is as hostile as any input: names, links, sizes and numbers are bounded, links are
// followed only within the tree, and keys are parsed. Files of the node are replaced only on
// request, and the replaced files are kept. Equal files stay as they are, so the same command
// completes an interrupted import.
//
// The package is below the command, because it uses the master's options and keys, which no package
// below supervisor may import.
package adopt

import "fmt"

// Bounds of the import.
const (
	maxBytes    = 64 << 30 // bytes of all files
	maxEntries  = 500_000  // files of one tree: a node must be able to copy all of them
	maxKeys     = 200_000  // keys of minions, in all states
	maxFile     = 4 << 30  // bytes of one file of states or pillars
	maxOptions  = 1 << 20  // bytes of one file of options
	maxConfs    = 200      // files of options
	maxKeyFile  = 16 << 10 // bytes of a minion's key
	maxPrivate  = 64 << 10 // bytes of a private key
	maxLinks    = 40       // links in a chain
	maxDepth    = 32       // folders below each other
	maxListed   = 1000     // notes to list; the limit for conflicts is the same
	maxAutosign = 1 << 20  // bytes of a list
	maxSaved    = 4 << 20  // bytes of the file of saved objects, as for the masters
)

// Kind is the kind of a file of the import. The summary has a line for each kind.
type Kind string

// The kinds, in the order of the summary.
const (
	MasterKey  Kind = "master key"
	SigningKey Kind = "signing key"
	Accepted   Kind = "accepted keys"
	Pending    Kind = "pending keys"
	Rejected   Kind = "rejected keys"
	Denied     Kind = "denied keys"
	Options    Kind = "option files"
	Lists      Kind = "autosign lists"
	States     Kind = "state files"
	Pillars    Kind = "pillar files"
	GPG        Kind = "gpg keys"
	Saved      Kind = "saved objects"
)

func allKinds() []Kind {
	return []Kind{MasterKey, SigningKey, Accepted, Pending, Rejected, Denied, Options, Lists, States, Pillars, GPG, Saved}
}

// Count says how many files of one kind the import found, by what happens to them.
type Count struct {
	Kind Kind `json:"kind"`
	New  int  `json:"new"`
	// Same counts the entries that the node already has.
	Same int `json:"same"`
	// Other counts the entries that the node has with other content. These entries are conflicts,
	// except files that the node's own master created and that no minion has seen.
	Other int `json:"other"`
	// Left counts the entries of the tree that are not imported. A note gives the reason.
	Left int `json:"left"`
}

// Note tells the administrator a fact or a task.
type Note struct {
	File   string `json:"file,omitempty"` // path in the tree
	Line   int    `json:"line,omitempty"` // counted from 1; 0: unknown
	Option string `json:"option,omitempty"`
	Text   string `json:"text"`
	// Info marks a note that reports no loss.
	Info bool `json:"info,omitempty"`
}

// String returns the note with its place: path:line: option name: text.
func (n Note) String() string {
	text := n.Text
	if n.Option != "" {
		text = "option " + n.Option + ": " + text
	}
	switch {
	case n.File == "":
		return text
	case n.Line == 0:
		return n.File + ": " + text
	}
	return fmt.Sprintf("%s:%d: %s", n.File, n.Line, text)
}
