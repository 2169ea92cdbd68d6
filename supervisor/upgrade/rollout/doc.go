// Package rollout brings a new version of the system to all machines of a cluster that
// were made from the image: first each writes it into the slot that does not run, which
// disturbs nobody, then one after another restarts, the one that drives last.
//
// What keeps this safe is at each node, and needs nobody who drives: a node proves the
// signature itself, restarts only in the cluster's turn, and goes back to the version
// before when it does not become well. Who drives may die at any moment; the same
// roll begun anew goes on with the nodes that are left. It ends with the restart of
// the node that drives, so that nothing has to outlive that.
//
// The package decides and words. It writes no disk and restarts nothing.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"saltern/image/bundle"
	"saltern/internal/printable"
)

// State is a node's report on its system.
type State struct {
	// Image: it runs from the appliance's image. The next fields are of it.
	Image   bool      `json:"image"`
	Version string    `json:"version"` // that runs
	Created time.Time `json:"created"` // of it; zero: not known
	Flavour string    `json:"flavour"` // kernel
	Trying  bool      `json:"trying"`  // the running version is not confirmed as good yet
	Keys    int       `json:"keys"`    // whose signature it trusts
	// Next is the version that the next boot tries, and when it was built; empty: none.
	Next        string    `json:"next,omitempty"`
	NextCreated time.Time `json:"nextCreated,omitzero"`
	// Left is the version in the slot that neither runs nor is tried at the next boot:
	// the one before, or one that the node went back from.
	Left        string    `json:"left,omitempty"`
	LeftCreated time.Time `json:"leftCreated,omitzero"`
	// GaveUp is when the other slot's version was to be tried, if it was left by itself;
	// zero: it was not.
	GaveUp time.Time `json:"gaveUp,omitzero"`
	// Window is its upgrade.window; empty: it installs nothing by itself.
	Window string `json:"window,omitempty"`

	Boot    string `json:"boot"`              // tells one start of the machine from another
	Serving bool   `json:"serving"`           // the node does its work
	Trouble string `json:"trouble,omitempty"` // why it does not; empty: not known
	Turn    bool   `json:"turn"`              // the node has the cluster's turn to restart
	Minions int    `json:"minions"`           // connected to it
	// Busy is the node's present step of an upgrade, or "". Fault is the reason why the node did
	// not restart when it was last asked to, or "".
	Busy  string `json:"busy,omitempty"`
	Fault string `json:"fault,omitempty"`
	// Drives is the upgrade of all nodes that it drives; empty: none.
	Drives string `json:"drives,omitempty"`
}

// trouble says of a node that does not serve why.
func (s State) trouble() string {
	if s.Trouble == "" {
		return "does not serve"
	}
	return "does not serve (" + printable.Brief(s.Trouble, maxText) + ")"
}

// has reports whether the node runs that version, known to be good or not.
func (s State) has(m bundle.Manifest) bool {
	return s.Image && s.Version == m.Version && s.Created.Equal(m.Created)
}

// takes reports whether the next boot tries that version.
func (s State) takes(m bundle.Manifest) bool {
	return s.Next == m.Version && s.NextCreated.Equal(m.Created)
}

// left reports whether the node had that version and went back, by itself or by hand.
func (s State) left(m bundle.Manifest) bool {
	return s.Left == m.Version && s.LeftCreated.Equal(m.Created)
}

// WentBack reports whether the node has left a version that is newer than what runs.
func (s State) WentBack() bool {
	return s.Image && s.Left != "" && !s.Created.IsZero() && s.LeftCreated.After(s.Created)
}

// Node is a machine of a roll. Errors of a node that cannot be asked are its own.
type Node interface {
	State(ctx context.Context) (State, error)
	// Install writes the version that r is a bundle of, and has it tried at the next boot.
	Install(ctx context.Context, r io.Reader) error
	// Restart begins a restart in the cluster's turn, for that version. It returns at
	// once; State says why it came to nothing.
	Restart(ctx context.Context, version string) error
}

// Errors that callers tell apart.
var (
	// ErrOld: the node runs a version that knows nothing of this.
	ErrOld = errors.New("it runs a version that cannot be upgraded from another node; upgrade it on itself first: applianced upgrade FILE --reboot")
	// ErrBusy: the node does something like it already.
	ErrBusy = errors.New("is at it already")
)

// Hosts says how a machine is upgraded that does not run from the image.
const Hosts = "does not run from the appliance's image: its packages are upgraded by the package manager (apt or dnf)"

// Code is the outcome of a roll, for programs.
type Code string

// The codes.
const (
	Upgraded    Code = "upgraded"    // all nodes have the version
	Unchanged   Code = "unchanged"   // they had it before
	Checked     Code = "checked"     // the call only asked for the steps
	Last        Code = "last"        // all others have it, and the node that drives restarts now
	Refused     Code = "refused"     // a node does not take this version; nothing was changed
	Away        Code = "away"        // a node cannot be asked or does not serve; nothing was changed
	Busy        Code = "busy"        // somebody else is at it; nothing was changed
	Unwritten   Code = "unwritten"   // a node could not write it; no node was restarted
	Stopped     Code = "stopped"     // a node did not serve with it; no further one was restarted
	Interrupted Code = "interrupted" // who drove it was stopped
	Closed      Code = "closed"      // its window closed before all nodes had it
)

// Good reports whether nothing has to be done any more.
func (c Code) Good() bool { return c == Upgraded || c == Unchanged || c == Checked || c == Last }

// Where says where a node stands.
type Where string

// The places.
const (
	New     Where = "new"     // the node has the new version, since this roll
	Same    Where = "same"    // it had it before
	Before  Where = "before"  // the node has the version from before the roll
	Written Where = "written" // the node has written the new version, and tries it at its next boot
	Restart Where = "restart" // it restarts, or is on trial
	Back    Where = "back"    // it tried the new one and went back
	Host    Where = "host"    // the node does not run from the image
	Unknown Where = "unknown"
)

// NodeResult is where one node stands.
type NodeResult struct {
	Name    string `json:"name"`
	Where   Where  `json:"where"`
	Version string `json:"version,omitempty"` // that it ran when it was last asked
	Cause   string `json:"cause,omitempty"`
}

// Schema is the version of [Progress].
const Schema = 1

// Progress is how far a roll is.
type Progress struct {
	Schema  int      `json:"schema"`
	Running bool     `json:"running"`
	Version string   `json:"version,omitempty"` // that is rolled out
	Lines   []string `json:"lines"`             // the steps so far
	Result  *Result  `json:"result,omitempty"`  // when it does not run; nil: there was none
}

// Result is the outcome of a roll.
type Result struct {
	Code  Code         `json:"code"`
	Cause string       `json:"cause,omitempty"`
	Nodes []NodeResult `json:"nodes"`
}

// refuses says why a node cannot take a version; empty: it can.
func refuses(s State, m bundle.Manifest) string {
	switch {
	case s.Keys == 0:
		return "trusts no key for upgrades: put the public key of who builds them into /etc/saltern/upgrade-keys/NAME.pem"
	case s.Flavour != "" && s.Flavour != m.Flavour:
		return fmt.Sprintf("has the kernel %s, and this is the version for %s", s.Flavour, m.Flavour)
	case s.Created.After(m.Created):
		return fmt.Sprintf("runs version %s, built %s, after this one", s.Version, s.Created.UTC().Format(time.RFC3339))
	}
	return ""
}
