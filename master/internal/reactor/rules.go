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

// RulesConfig of Rules.
type RulesConfig struct {
	Entries []any  // the option reactor, as a list
	File    string // the file that holds such a list, if the option is text
	// Tell tells the other masters of a cluster a change. It may be nil: there are none.
	Tell func(change *value.Map)
	Log  *slog.Logger
}

// Rules are the rules in force, and whether this master reacts. Changes by Add and Delete apply at
// all running masters of a cluster, until they stop. It is safe for concurrent use.
type Rules struct {
	cfg RulesConfig

	mu   sync.Mutex // held while the rules are changed
	text []byte     // of the file, as last applied
	seen []byte     // of the file when last read; used by Follow only
	list atomic.Pointer[Map]
	// idle is set by reactor.set_leader False: events do not react.
	idle atomic.Bool
}

const (
	// lookEvery is how often the file is read.
	lookEvery = time.Second
	// maxRules bounds the file, in bytes.
	maxRules = 4 << 20
)

// NewRules starts with the option reactor. Entries that Salt would skip are logged and skipped.
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

// Follow applies changes of the file of rules, until ctx ends. Salt reads it at each event. Here a
// change applies a moment later, so that no event waits for a disk, and only when two reads agree:
// a program that writes in place empties the file first.
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

// adoptText applies the rules in a text. err is why there is none. A fault is logged once, and
// leaves the rules as they are.
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
	empty := entries == nil // an emptied file, or one of comments
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

// readFile reads a file. With an error, text is the text of the error.
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

// All lists the rules, in the form of the option.
func (r *Rules) All() []any { return r.list.Load().All() }

// Files returns the files that react to a tag now.
func (r *Rules) Files(tag string) []string {
	if r.idle.Load() {
		return nil
	}
	return r.list.Load().Files(tag)
}

// Fields of a change of the rules in events between the masters of a cluster.
const (
	addedField   = "added"   // a tag
	filesField   = "files"   // of the tag that was added
	deletedField = "deleted" // a tag
)

// Add adds a rule and returns the outcome in Salt's words.
func (r *Rules) Add(tag string, files any) *value.Map {
	if r.cfg.File != "" {
		return r.refuseForFile()
	}
	change := value.NewMap(addedField, tag, filesField, files)
	return r.changeAndTell(change, "Reactor added.", "Reactor already exists.")
}

// Delete removes a rule and returns the outcome in Salt's words.
func (r *Rules) Delete(tag string) *value.Map {
	if r.cfg.File != "" {
		return r.refuseForFile()
	}
	return r.changeAndTell(value.NewMap(deletedField, tag), "Reactor deleted.", "Reactor does not exists.")
}

// refuseForFile refuses to change rules that a file holds.
func (r *Rules) refuseForFile() *value.Map {
	return value.NewMap("status", false, "comment",
		"The rules of the reactor are in "+r.cfg.File+": change them there.")
}

func (r *Rules) changeAndTell(change *value.Map, done, not string) *value.Map {
	if !r.Obey(change) {
		return value.NewMap("status", false, "comment", not)
	}
	if r.cfg.Tell != nil {
		r.cfg.Tell(change)
	}
	return value.NewMap("status", true, "comment", done)
}

// Obey changes the rules as another master of the cluster has done, and reports whether that
// changed anything.
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

// Leads reports whether this master reacts.
func (r *Rules) Leads() bool { return !r.idle.Load() }

// Lead sets whether this master reacts.
func (r *Rules) Lead(leads bool) {
	r.idle.Store(!leads)
	r.cfg.Log.Info("reactor was told whether to react", "react", leads)
}
