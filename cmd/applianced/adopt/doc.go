// Package adopt brings what a Salt master in Python has onto an appliance: the key that
// its minions know, their keys in all states, the administrator's options, states,
// pillars, the lists that accept minions, and the keys that open secrets in pillars.
//
// [Look] reads a tree of files, checks all of it, compares it with what the node has,
// and writes nothing; [Plan.Apply] puts it into place:
//
//	folder, or tar → Unpack → Tree → Look: options, keys, roots → Plan → Apply
//	                                     (the node's storage is compared)   ↓
//	                           stage (.import-…) → backup.Place, file by file
//
// The tree is as hostile as any input: names, links, sizes and numbers are bounded,
// links are followed within the tree alone, and keys are parsed. Nothing of the node is
// replaced unless that was asked for, and then it is kept. What is in place already is
// left alone, so that an import that was interrupted is finished by the same command.
//
// It is a part of the command because it knows the master's options and keys, which
// nothing below supervisor may.
package adopt

import "fmt"

// Bounds of what is read.
const (
	maxBytes    = 64 << 30 // of all files
	maxEntries  = 500_000  // of one tree of files, as a node copies them
	maxKeys     = 200_000  // of minions, in all states
	maxFile     = 4 << 30  // of one file of states or pillars
	maxOptions  = 1 << 20  // of one file of options
	maxConfs    = 200      // files of options
	maxKeyFile  = 16 << 10 // of a minion's key
	maxPrivate  = 64 << 10 // of a private key
	maxLinks    = 40       // that lead on to each other
	maxDepth    = 32       // folders
	maxListed   = 1000     // notes and conflicts that are listed, each
	maxAutosign = 1 << 20  // of a list
)

// Kind is what belongs together in the summary.
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
)

func allKinds() []Kind {
	return []Kind{MasterKey, SigningKey, Accepted, Pending, Rejected, Denied, Options, Lists, States, Pillars, GPG}
}

// Count is how much of a kind there is.
type Count struct {
	Kind Kind `json:"kind"`
	New  int  `json:"new"`
	// Same is in place already.
	Same int `json:"same"`
	// Other is there with another content: a conflict, unless the node's own master has
	// made it and no minion knows it.
	Other int `json:"other"`
	// Left is in the tree and is not taken; a note says why.
	Left int `json:"left"`
}

// Note is something that an administrator has to know, or to do.
type Note struct {
	File   string `json:"file,omitempty"` // in the tree
	Line   int    `json:"line,omitempty"` // from 1; 0: not known
	Option string `json:"option,omitempty"`
	Text   string `json:"text"`
	// Info says that nothing is missing because of it.
	Info bool `json:"info,omitempty"`
}

// String gives the note with its place: path:line: option name: text.
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
