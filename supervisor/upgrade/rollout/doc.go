// Package rollout installs a new version of the system on all machines of a cluster that were made
// from the image. First each node writes the version into the slot that does not run, which does
// not interrupt its work. Then the nodes restart one after another, the driving node last.
//
// Each node guards itself, without the driving node: it checks the signature, restarts only when it
// has the cluster's turn, and returns to the earlier version if it does not become well. The
// driving node may fail at any moment: the same rollout, started again, continues with the
// remaining nodes. A rollout ends with the restart of the driving node, so that nothing has to
// survive that restart.
//
// The package makes decisions and writes messages. It writes to no disk and restarts nothing.
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
	// Image reports whether the node runs from the appliance's image. The next fields describe that
	// image.
	Image   bool      `json:"image"`
	Version string    `json:"version"` // the running version
	Created time.Time `json:"created"` // when the running version was built; zero: not known
	Flavour string    `json:"flavour"` // kernel flavour
	Trying  bool      `json:"trying"`  // the running version is on trial
	Keys    int       `json:"keys"`    // number of keys whose signatures the node trusts
	// Next is the version that the next boot will try, NextCreated the time at which it was built.
	// Empty: no version is selected.
	Next        string    `json:"next,omitempty"`
	NextCreated time.Time `json:"nextCreated,omitzero"`
	// Left is the version in the slot that is not in use, i.e. does not run and is not selected for
	// the next boot. It is the version before the running one, or a version from which the node
	// went back.
	Left        string    `json:"left,omitempty"`
	LeftCreated time.Time `json:"leftCreated,omitzero"`
	// GaveUp is set if the boot loader has abandoned the version in the slot that does not run. It
	// is the time at which the trial of that version was due.
	GaveUp time.Time `json:"gaveUp,omitzero"`
	// Window is the node's upgrade.window. Empty: the node installs nothing by itself.
	Window string `json:"window,omitempty"`

	Boot    string `json:"boot"`              // identifies this boot of the machine
	Serving bool   `json:"serving"`           // whether the node works, i.e. minions or the volume can use it
	Trouble string `json:"trouble,omitempty"` // why the node does not serve; empty: not known
	Turn    bool   `json:"turn"`              // whether the node has the cluster's turn to restart
	Minions int    `json:"minions"`           // number of minions connected to the node
	// Busy is the node's present step of an upgrade, or "". Fault is the reason why the node did
	// not restart after the last request, or "".
	Busy  string `json:"busy,omitempty"`
	Fault string `json:"fault,omitempty"`
	// Drives describes the upgrade of all nodes that this node drives. Empty: it drives none.
	Drives string `json:"drives,omitempty"`
}

// trouble returns a phrase that says that a node does not serve, and why.
func (s State) trouble() string {
	if s.Trouble == "" {
		return "does not serve"
	}
	return "does not serve (" + printable.Brief(s.Trouble, maxText) + ")"
}

// runsVersion reports whether the node runs that version, on trial or not.
func (s State) runsVersion(m bundle.Manifest) bool {
	return s.Image && s.Version == m.Version && s.Created.Equal(m.Created)
}

// bootsVersion reports whether the next boot tries that version.
func (s State) bootsVersion(m bundle.Manifest) bool {
	return s.Next == m.Version && s.NextCreated.Equal(m.Created)
}

// leftVersion reports whether the node had that version and went back from it, by itself or by hand.
func (s State) leftVersion(m bundle.Manifest) bool {
	return s.Left == m.Version && s.LeftCreated.Equal(m.Created)
}

// WentBack reports whether the node has returned from a newer version to the running one.
func (s State) WentBack() bool {
	return s.Image && s.Left != "" && !s.Created.IsZero() && s.LeftCreated.After(s.Created)
}

// Node is a machine of a rollout. Each method returns an error if the node does not answer.
type Node interface {
	State(ctx context.Context) (State, error)
	// Install writes the version whose bundle is r, and selects it for a trial at the next boot.
	Install(ctx context.Context, r io.Reader) error
	// Restart asks the node to restart into that version when it has the cluster's turn. It returns
	// at once. If the node does not restart, State.Fault says why.
	Restart(ctx context.Context, version string) error
}

// Errors that callers distinguish.
var (
	// ErrOld means that the node's version does not support upgrades by another node.
	ErrOld = errors.New("it runs a version that cannot be upgraded from another node; upgrade it on itself first: applianced upgrade FILE --reboot")
	// ErrBusy means that a step of an upgrade is already running on the node.
	ErrBusy = errors.New("is busy")
)

// Hosts says how to upgrade a machine that does not run from the image.
const Hosts = "does not run from the appliance's image: its packages are upgraded by the package manager (apt or dnf)"

// Code is the outcome of a rollout, for programs.
type Code string

// Values of Code.
const (
	Upgraded    Code = "upgraded"    // all nodes have the version
	Unchanged   Code = "unchanged"   // all nodes had the version already
	Checked     Code = "checked"     // only a list of the steps was requested; nothing was changed
	Last        Code = "last"        // all other nodes have the version, and the driving node restarts now
	Refused     Code = "refused"     // a node does not take this version; nothing was changed
	Away        Code = "away"        // a node does not answer or does not serve; nothing was changed
	Busy        Code = "busy"        // another rollout is running; nothing was changed
	Unwritten   Code = "unwritten"   // a node could not write the version; no node was restarted
	Stopped     Code = "stopped"     // a node did not serve with the version; no further node was restarted
	Interrupted Code = "interrupted" // the driving node was stopped
	Closed      Code = "closed"      // the upgrade window closed before all nodes had the version
)

// Good reports whether nothing remains to be done.
func (c Code) Good() bool { return c == Upgraded || c == Unchanged || c == Checked || c == Last }

// Where is the stage of a node in a rollout.
type Where string

// Values of Where.
const (
	New     Where = "new"     // the node has the new version, through this rollout
	Same    Where = "same"    // the node had the version before the rollout
	Before  Where = "before"  // the node has the version from before the rollout
	Written Where = "written" // the node has written the new version, and tries it at its next boot
	Restart Where = "restart" // the node restarts, or runs the version on trial
	Back    Where = "back"    // the node tried the new version and went back
	Host    Where = "host"    // the node does not run from the image
	Unknown Where = "unknown"
)

// NodeResult is the outcome of a rollout at one node.
type NodeResult struct {
	Name    string `json:"name"`
	Where   Where  `json:"where"`
	Version string `json:"version,omitempty"` // version that the node ran when it last answered
	Cause   string `json:"cause,omitempty"`
}

// Schema is the version of [Progress].
const Schema = 1

// Progress is the progress of a rollout.
type Progress struct {
	Schema  int      `json:"schema"`
	Running bool     `json:"running"`
	Version string   `json:"version,omitempty"` // version that the rollout installs
	Lines   []string `json:"lines"`             // the steps so far
	Result  *Result  `json:"result,omitempty"`  // result of the last ended rollout; nil: none
}

// Result is the outcome of a rollout.
type Result struct {
	Code  Code         `json:"code"`
	Cause string       `json:"cause,omitempty"`
	Nodes []NodeResult `json:"nodes"`
}

// refuses returns why a node cannot take a version, or "" if it can.
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
