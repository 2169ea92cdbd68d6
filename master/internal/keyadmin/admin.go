// Package keyadmin executes an administrator's commands for minion keys, from salt-key or a wheel
// call: list, accept, reject, delete and fingerprint. Keys are selected by glob or by lists. The
// package also fires the events and requests the key rotation that the changes require. Its answers
// have the same form as those of salt/key.py (class Key).
package keyadmin

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"saltern/master/keys"
	"saltern/master/pattern"
	"saltern/master/value"
)

// Ring is the set of keys, together with the side effects of a change. All fields are required. It
// is safe for concurrent use if its functions are.
type Ring struct {
	Store *keys.Store
	// Dir is pki_dir, the directory of the master's own keys.
	Dir      string
	HashType string
	// Fire fires the event of a change. The tag is always "salt/key".
	Fire func(tag string, data *value.Map) error
	// Rotate requests a new publish key from the master, because a minion has lost the right to
	// read publishes. It does nothing if rotate_aes_key is off.
	Rotate func() error
	// Forget removes the cached data of a minion that does not have a key any more.
	Forget func(id string) error
}

// statuses lists the states in the order in which Salt lists them.
var statuses = []keys.State{keys.Pending, keys.Rejected, keys.Accepted, keys.Denied}

// parseStatus returns the state of the keys in a directory. name is the name of the directory in
// Salt's answers, such as "minions_pre". It returns false for an unknown name.
func parseStatus(name string) (keys.State, bool) {
	for _, st := range statuses {
		if st.Dir() == name {
			return st, true
		}
	}
	return keys.None, false
}

// List returns the ids in each of the four directories, by directory name. It includes empty
// directories.
func (r *Ring) List() *value.Map {
	m := value.NewMap()
	for _, st := range statuses {
		m.Set(st.Dir(), value.List(r.idsIn(st)))
	}
	return m
}

func (r *Ring) idsIn(st keys.State) []string {
	ids := r.Store.List(st)
	foldSort(ids)
	return ids
}

// foldSort sorts ids ignoring case, as Salt does.
func foldSort(ids []string) {
	sort.SliceStable(ids, func(i, j int) bool { return strings.ToLower(ids[i]) < strings.ToLower(ids[j]) })
}

// Local returns the names of the master's own key files. It leaves out links, such as master.pem
// when it is a link to <id>.pem (salt/cache/localfs_key.py list).
func (r *Ring) Local() ([]string, error) {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the master's keys: %w", err)
	}
	var out []string
	for _, e := range entries {
		if n := e.Name(); e.Type().IsRegular() && (strings.HasSuffix(n, ".pem") || strings.HasSuffix(n, ".pub")) {
			out = append(out, n)
		}
	}
	foldSort(out)
	return out, nil
}

// All returns the result of List, with the master's own keys under the key "local".
func (r *Ring) All() (*value.Map, error) {
	local, err := r.Local()
	if err != nil {
		return nil, err
	}
	m := r.List()
	m.Set("local", value.List(local))
	return m, nil
}

// Status returns the part of All that name selects: acc…, pre… or un…, rej…, den…, all. For any
// other name it returns an empty map, as Salt does.
func (r *Ring) Status(name string) (*value.Map, error) {
	one := func(st keys.State) (*value.Map, error) {
		return value.NewMap(st.Dir(), value.List(r.idsIn(st))), nil
	}
	switch {
	case strings.HasPrefix(name, "acc"):
		return one(keys.Accepted)
	case strings.HasPrefix(name, "pre"), strings.HasPrefix(name, "un"):
		return one(keys.Pending)
	case strings.HasPrefix(name, "rej"):
		return one(keys.Rejected)
	case strings.HasPrefix(name, "den"):
		return one(keys.Denied)
	case strings.HasPrefix(name, "all"):
		return r.All()
	}

	return value.NewMap(), nil
}

// Match returns the ids that match, by directory name. match is a glob, a text with globs separated
// by commas, or a list of globs. Match leaves out directories without a matching id. If full is
// set, it also searches the master's own keys.
func (r *Ring) Match(match any, full bool) (*value.Map, error) {
	globs := patterns(match)
	all := r.List()
	if full {
		var err error
		if all, err = r.All(); err != nil {
			return nil, err
		}
	}

	out := value.NewMap()
	for k, v := range all.All() {
		var hit []any
		for _, id := range v.([]any) {
			for _, g := range globs {
				if g == "*" || pattern.Glob(g, id.(string)) {
					hit = append(hit, id)
					break
				}
			}
		}

		if len(hit) > 0 {
			out.Set(k, hit)
		}
	}

	return out, nil
}

func patterns(match any) []string {
	switch m := match.(type) {
	case string:
		return strings.Split(m, ",")
	case []string:
		return m
	case []any:
		var out []string
		for _, v := range m {
			if s, ok := v.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}

	return nil
}

// Selection selects the keys for an action: those that the method Match finds for the field Match,
// or those that Dict lists by directory name.
type Selection struct {
	Match any
	Dict  *value.Map
}

func (r *Ring) selected(s Selection) (*value.Map, error) {
	if s.Dict != nil {
		return s.Dict, nil
	}
	return r.Match(s.Match, false)
}

// whereNow returns the answer to an action: the selected keys, by the directories in which they are
// now.
func (r *Ring) whereNow(s Selection) (*value.Map, error) {
	if s.Dict == nil {
		return r.Match(s.Match, false)
	}

	out := value.NewMap()
	for _, v := range s.Dict.All() {
		for _, id := range patterns(v) {
			for _, st := range []keys.State{keys.Accepted, keys.Pending, keys.Rejected, keys.Denied} {
				if r.hasKey(id, st) {
					out.Set(st.Dir(), append(out.List(st.Dir()), id))
				}
			}
		}
	}

	return out, nil
}

func (r *Ring) hasKey(id string, st keys.State) bool {
	if st == keys.Denied {
		_, ok := r.Store.Denied(id)
		return ok
	}
	e, ok := r.Store.Lookup(id)
	return ok && e.State == st
}

// errInvalid means that a key is not a valid public key, so its state does not change.
var errInvalid = errors.New("unable to accept invalid key")

// Accept accepts the selected pending keys. If rejected or denied is set, it also accepts keys in
// those states. It returns the selected keys by the directories in which they are afterwards.
func (r *Ring) Accept(s Selection, rejected, denied bool) (*value.Map, error) {
	from := []keys.State{keys.Pending}
	if rejected {
		from = append(from, keys.Rejected)
	}
	if denied {
		from = append(from, keys.Denied)
	}
	return r.changeState(s, from, keys.Accepted)
}

// Reject rejects the selected pending keys. If accepted or denied is set, it also rejects keys in
// those states.
func (r *Ring) Reject(s Selection, accepted, denied bool) (*value.Map, error) {
	from := []keys.State{keys.Pending}
	if denied {
		from = append(from, keys.Denied)
	}
	if accepted {
		from = append(from, keys.Accepted)
	}
	ret, err := r.changeState(s, from, keys.Rejected)
	return ret, errors.Join(err, r.Rotate())
}

func (r *Ring) changeState(s Selection, from []keys.State, to keys.State) (*value.Map, error) {
	found, err := r.selected(s)
	if err != nil {
		return nil, err
	}

	var errs []error
	for _, st := range from {
		for _, id := range patterns(found.Value(st.Dir())) {
			if err := r.moveKey(id, st, to); err != nil {
				errs = append(errs, err)
			}
		}
	}

	ret, err := r.whereNow(s)
	return ret, errors.Join(append(errs, err)...)
}

func (r *Ring) moveKey(id string, from, to keys.State) error {
	if !r.hasKey(id, from) {
		return nil // another writer has changed the key meanwhile
	}

	var e keys.Entry
	var err error
	if from == keys.Denied {
		e, _ = r.Store.Denied(id)
		if err = r.Store.Put(id, to, e.PEM); err == nil {
			err = r.Store.Delete(id, keys.Denied)
		}
	} else {
		e, _ = r.Store.Lookup(id)
		if _, bad := e.Public(); bad != nil {
			return fmt.Errorf("%w for %s: %w", errInvalid, id, bad)
		}
		err = r.Store.Move(id, to)
	}

	if err != nil {
		return fmt.Errorf("change the key of %s: %w", id, keys.Advise(err))
	}

	return r.Fire("salt/key", value.NewMap("result", true, "act", to.String(), "id", id, "pub", e.PEM))
}

// Delete removes keys. Unless preserve is set, it also removes the cached data of minions that do
// not have a key any more.
func (r *Ring) Delete(s Selection, preserve bool) (*value.Map, error) {
	found, err := r.selected(s)
	if err != nil {
		return nil, err
	}

	var errs []error
	for k, v := range found.All() {
		name, _ := k.(string)
		st, ok := parseStatus(name)
		if !ok {
			continue
		}

		for _, id := range patterns(v) {
			if err := r.remove(id, st, preserve); err != nil {
				errs = append(errs, err)
			}
		}
	}

	errs = append(errs, r.Rotate())
	ret, err := r.whereNow(s)
	return ret, errors.Join(append(errs, err)...)
}

func (r *Ring) remove(id string, st keys.State, preserve bool) error {
	if err := r.Store.Delete(id, st); err != nil {
		return fmt.Errorf("delete the key of %s: %w", id, keys.Advise(err))
	}
	if _, ok := r.Store.Lookup(id); !ok && !preserve {
		if err := r.Forget(id); err != nil {
			return fmt.Errorf("clear the cache of %s: %w", id, err)
		}
	}
	return r.Fire("salt/key", value.NewMap("result", true, "act", "delete", "id", id))
}

// Text returns the PEM texts of the matching keys, by directory and id.
func (r *Ring) Text(match any) (*value.Map, error) {
	return r.forEach(match, false, func(st keys.State, id string) (any, error) {
		if st == keys.Denied {
			e, _ := r.Store.Denied(id)
			return e.PEM, nil
		}
		e, _ := r.Store.Lookup(id)
		return e.PEM, nil
	})
}

// Finger returns the fingerprints of the matching keys, including the master's own, by directory
// and name. If hashType is "", it uses the configured hash type.
func (r *Ring) Finger(match any, hashType string) (*value.Map, error) {
	hashType = cmp.Or(hashType, r.HashType)
	return r.forEach(match, true, func(st keys.State, id string) (any, error) {
		switch st {
		case keys.None:
			b, err := os.ReadFile(filepath.Join(r.Dir, id))
			if err != nil {
				return nil, fmt.Errorf("read a key of the master: %w", err)
			}
			return keys.Fingerprint(string(b), hashType)
		case keys.Denied:
			e, _ := r.Store.Denied(id)
			return keys.Fingerprint(e.PEM, hashType)
		}

		return r.Store.Finger(id, hashType)
	})
}

func (r *Ring) forEach(match any, full bool, f func(keys.State, string) (any, error)) (*value.Map, error) {
	found, err := r.Match(match, full)
	if err != nil {
		return nil, err
	}

	out := value.NewMap()
	for k, v := range found.All() {
		st, _ := parseStatus(k.(string))
		m := value.NewMap()
		for _, id := range patterns(v) {
			got, err := f(st, id)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}

			m.Set(id, got)
		}

		out.Set(k, m)
	}

	return out, nil
}
