package reactor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

// RulesConfig configures Rules.
type RulesConfig struct {
	Entries []any  // the option reactor, if it is a list
	File    string // the file with the list of rules, if the option is a string
	// Tell sends a change to the other masters of the cluster. It may be nil: there are no other
	// masters.
	Tell func(change *value.Map)
	Log  *slog.Logger
}

// Rules holds the current rules, and whether this master reacts to events. A change by Add or
// Delete lasts until the master stops. It applies on all running masters of a cluster. Rules is
// safe for concurrent use.
type Rules struct {
	cfg RulesConfig

	mu   sync.Mutex // held while the rules change
	text []byte     // contents of the file when its rules were last applied
	seen []byte     // contents of the file when Follow last read it; only Follow uses it
	list atomic.Pointer[Map]
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
	r := &Rules{cfg: cfg}
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

	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	text, err = io.ReadAll(io.LimitReader(file, maxRules+1))
	if err == nil && len(text) > maxRules {
		err = fmt.Errorf("%s has more than %d bytes", path, maxRules)
	}

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

// Fields of the event by which a master reports a change of the rules to the other masters.
const (
	addedField   = "added"   // the tag of a new rule
	filesField   = "files"   // the files of the new rule
	deletedField = "deleted" // the tag of a rule that was removed
)

// Add adds a rule. It returns Salt's sentence about the outcome.
func (r *Rules) Add(tag string, files any) *value.Map {
	if r.cfg.File != "" {
		return r.refuseForFile()
	}
	change := value.NewMap(addedField, tag, filesField, files)
	return r.changeAndTell(change, "Reactor added.", "Reactor already exists.")
}

// Delete removes a rule. It returns Salt's sentence about the outcome.
func (r *Rules) Delete(tag string) *value.Map {
	if r.cfg.File != "" {
		return r.refuseForFile()
	}
	return r.changeAndTell(value.NewMap(deletedField, tag), "Reactor deleted.", "Reactor does not exists.")
}

// refuseForFile returns the sentence for Add and Delete if the rules are in a file. In that case
// neither Add nor Delete can change the rules.
func (r *Rules) refuseForFile() *value.Map {
	return value.NewMap("status", false, "comment",
		"The rules of the reactor are in "+r.cfg.File+": change them there.")
}

func (r *Rules) changeAndTell(change *value.Map, success, failure string) *value.Map {
	if !r.Obey(change) {
		return value.NewMap("status", false, "comment", failure)
	}
	if r.cfg.Tell != nil {
		r.cfg.Tell(change)
	}
	return value.NewMap("status", true, "comment", success)
}

// Obey applies a change that this master or another master of the cluster has made. It returns
// false if the change had no effect.
func (r *Rules) Obey(change *value.Map) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, changes := *r.list.Load(), false
	if tag, ok := change.Value(deletedField).(string); ok {
		next, changes = next.Removed(tag)
	} else {
		next, changes = next.Added(change.Str(addedField), change.Value(filesField))
	}
	r.list.Store(&next)
	return changes
}

// Leads reports whether this master reacts to events.
func (r *Rules) Leads() bool { return !r.idle.Load() }

// Lead sets whether this master reacts to events.
func (r *Rules) Lead(leads bool) {
	r.idle.Store(!leads)
	r.cfg.Log.Info("reactor was told whether to react", "react", leads)
}
