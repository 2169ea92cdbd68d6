package reactor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/durable"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// RulesConfig configures Rules.
type RulesConfig struct {
	Entries []any  // the option reactor, if it is a list
	File    string // the file with the list of rules, if the option is a string
	ID      string // id of this master, which no other master of the cluster has
	// Tell sends the changes of the rules to the other masters of the cluster, whose Obey gets them.
	// It may be nil: there are no other masters.
	Tell func(changes *value.Map)
	Now  func() time.Time // nil: time.Now
	Log  *slog.Logger
}

// Rules holds the current rules, and whether this master reacts to events. A change by Add or
// Delete lasts until the master stops. It applies on all running masters of a cluster: for each tag
// the latest change counts, so that the masters have the same changes whoever made them when. Rules
// is safe for concurrent use.
type Rules struct {
	cfg  RulesConfig
	self string // id of this run of this master in stamps: after a restart, its earlier stamps may come again

	mu      sync.Mutex // held while the rules change
	text    []byte     // contents of the file when its rules were last applied
	seen    []byte     // contents of the file when Follow last read it; only Follow uses it
	option  Map        // rules without the changes
	changed changes
	list    atomic.Pointer[Map]
	// idle means that this master does not react to events. The runner reactor.set_leader with
	// False sets it.
	idle atomic.Bool
}

const (
	// lookEvery is how often the file is read.
	lookEvery = time.Second
	// maxRules bounds the size of the file, in bytes.
	maxRules = 4 << 20
)

// NewRules returns the rules in the option reactor. It logs and leaves out entries that Salt would
// skip.
func NewRules(cfg RulesConfig) *Rules {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Rules{
		cfg:     cfg,
		self:    fmt.Sprintf("%s since %d", cfg.ID, cfg.Now().UnixNano()),
		changed: changes{},
	}
	r.list.Store(&Map{})
	if cfg.File == "" {
		r.replace(cfg.Entries)
		return r
	}
	r.adoptText(readFile(cfg.File))
	return r
}

func (r *Rules) replace(entries []any) {
	list, faults := Parse(entries)
	for _, err := range faults {
		r.cfg.Log.Error("entry of the option reactor is passed over", "path", r.cfg.File, "error", err)
	}
	r.option = list
	r.list.Store(&list)
}

// Follow applies changes of the file of rules until ctx ends. Salt reads the file at each event.
// This master reads it periodically, so that no event waits for a disk. Follow applies a change
// when two consecutive reads have returned the same content, because a program that rewrites the
// file in place first empties it.
func (r *Rules) Follow(ctx context.Context) {
	if r.cfg.File == "" {
		return
	}

	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			text, err := readFile(r.cfg.File)
			if settled := r.seen != nil && bytes.Equal(text, r.seen); settled {
				r.adoptText(text, err)
			}
			r.seen = text
		case <-ctx.Done():
			return
		}
	}
}

// adoptText replaces the rules by those in text. If the file could not be read, err is the reason,
// and text is the text of err. adoptText then logs the error once and does not change the rules.
func (r *Rules) adoptText(text []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.text != nil && bytes.Equal(text, r.text) {
		return
	}

	r.text = text
	var entries any
	if err == nil {
		entries, err = saltyaml.Decode(text, r.cfg.File)
	}

	list, ok := entries.([]any)
	empty := entries == nil // the file is empty or contains only comments
	if err == nil && !ok && !empty {
		err = fmt.Errorf("%s holds no list of rules", r.cfg.File)
	}

	if err != nil {
		r.cfg.Log.Error("rules of the reactor cannot be read; those of before go on", "path", r.cfg.File, "error", err)
		return
	}

	r.replace(list)
	if len(list) == 0 {
		r.cfg.Log.Warn("the file of the reactor's rules has none; nothing reacts", "path", r.cfg.File)
		return
	}

	r.cfg.Log.Info("rules of the reactor were read", "path", r.cfg.File)
}

// readFile returns the content of a file. If it cannot read the file, it also returns the error's
// text as text, so that Follow notices when the error changes.
func readFile(path string) (text []byte, err error) {
	defer func() {
		if err != nil {
			text = []byte(err.Error())
		}
	}()

	text, _, err = durable.ReadFile(path, maxRules, durable.Follow)
	return text, err
}

// All returns the rules in the form of the option.
func (r *Rules) All() []any { return r.list.Load().All() }

// Files returns the files that react to a tag now. It returns none if this master does not react to
// events.
func (r *Rules) Files(tag string) []string {
	if r.idle.Load() {
		return nil
	}
	return r.list.Load().Files(tag)
}

// Add adds a rule. It returns Salt's sentence about the outcome.
func (r *Rules) Add(tag string, files any) *value.Map {
	list, all := textsIn(files)
	if tag == "" || len(list) == 0 || !all {
		return outcome(false, "Reactor already exists.")
	}

	return r.change(tag, func(current change, left int) (change, string) {
		if left > 0 || current.files != nil {
			return current, "Reactor already exists."
		}
		current.files = list
		return current, ""
	}, "Reactor added.")
}

// Delete removes the first rule for a tag. It returns Salt's sentence about the outcome.
func (r *Rules) Delete(tag string) *value.Map {
	return r.change(tag, func(current change, left int) (change, string) {
		switch {
		case left > 0:
			current.removed++
		case current.files != nil:
			current.files = nil
		default:
			return current, "Reactor does not exists."
		}
		return current, ""
	}, "Reactor deleted.")
}

func outcome(status bool, comment string) *value.Map {
	return value.NewMap("status", status, "comment", comment)
}

// change changes the rules for a tag and tells the other masters. alter gets the change that is in
// effect and how many rules of the option are left for the tag. It returns the new change, or the
// reason why there is none.
func (r *Rules) change(tag string, alter func(current change, left int) (change, string), success string) *value.Map {
	if r.cfg.File != "" {
		return outcome(false, "The rules of the reactor are in "+r.cfg.File+": change them there.")
	}

	r.mu.Lock()
	left := r.option.count(tag) - r.changed[tag].removed
	altered, refusal := alter(r.changed[tag], left)
	next := maps.Clone(r.changed)
	altered.stamp = next.nextStamp(r.cfg.Now(), r.self)
	next[tag] = altered
	if refusal == "" && !next.within(1) {
		refusal = "Too many rules were changed since the start of the master: change the option."
	}
	if refusal == "" {
		r.adoptChanges(next)
	}
	r.mu.Unlock()

	if refusal != "" {
		return outcome(false, refusal)
	}
	if r.cfg.Tell != nil {
		r.cfg.Tell(next.toEvent())
	}
	return outcome(true, success)
}

// adoptChanges makes next the changes in effect. The caller holds mu and no longer changes next.
func (r *Rules) adoptChanges(next changes) {
	r.changed = next
	list := next.applyTo(r.option)
	r.list.Store(&list)
}

// Obey merges the changes that another master of the cluster knows. If some are new to this master,
// it tells all masters, because the sender may have died before it reached the others. It also
// tells them what the sender lacks. If both know the same, it sends nothing.
func (r *Rules) Obey(told *value.Map) {
	theirs, ok := changesOf(told)
	if !ok {
		r.cfg.Log.Warn("a change of the reactor's rules by another master cannot be read")
		return
	}
	if r.cfg.File != "" {
		return // then only the file counts
	}

	r.mu.Lock()
	merged := maps.Clone(r.changed)
	adopted, lacking := merged.merge(theirs)
	if adopted {
		r.adoptChanges(merged)
	}
	r.mu.Unlock()

	if (adopted || lacking) && r.cfg.Tell != nil && merged.within(maxMerged) {
		r.cfg.Tell(merged.toEvent())
	}
}

// Leads reports whether this master reacts to events.
func (r *Rules) Leads() bool { return !r.idle.Load() }

// Lead sets whether this master reacts to events.
func (r *Rules) Lead(leads bool) {
	r.idle.Store(!leads)
	r.cfg.Log.Info("reactor was told whether to react", "react", leads)
}
