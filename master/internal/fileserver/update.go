package fileserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/master/value"
)

// Changes lists the changes that Update found in one backend.
type Changes struct {
	Backend                  string
	Added, Removed, Modified []string
	// fetched and new are set only for an Updater, which does not list its files. new means that
	// the Updater has fetched changes.
	fetched, new bool
}

// Changed reports whether anything changed.
func (c Changes) Changed() bool { return c.new || len(c.Added)+len(c.Removed)+len(c.Modified) > 0 }

// Event returns the data of the event fileserver/<backend>/update (option fileserver_events,
// salt/fileserver/roots.py update).
func (c Changes) Event() *value.Map {
	if c.fetched {
		return value.NewMap("changed", c.new, "backend", c.Backend)
	}
	return value.NewMap("changed", c.Changed(), "files",
		value.NewMap("changed", value.List(c.Modified), "removed", value.List(c.Removed), "added",
			value.List(c.Added)), "backend", c.Backend)
}

// Update reads the modification times of the files of the backends and compares them with those of
// the last call. The first call only stores the times. Update drops the cached lists of backends
// that have changed. selection names backends as in Salt's runner; nil means all.
func (s *Server) Update(ctx context.Context, selection any) (out []Changes, err error) {
	var errs []error
	for _, b := range s.chooseBackends(selection) {
		if u, ok := b.(Updater); ok {
			changed, err := u.Update(ctx)
			if err != nil {
				errs = append(errs, fmt.Errorf("update %s: %w", b.Name(), err))
			}
			out = append(out, Changes{Backend: b.Name(), fetched: true, new: changed})
			continue
		}

		now, err := b.Times(ctx)
		if err != nil {
			return out, fmt.Errorf("update %s: %w", b.Name(), err)
		}

		s.mu.Lock()
		old, before := s.times[b.Name()]
		s.times[b.Name()] = now
		c := Changes{Backend: b.Name()}
		if before {
			c.compare(old, now)
		}

		if c.Changed() {
			maps.DeleteFunc(s.cached, func(k listKey, _ *cachedList) bool { return k.backend == b.Name() })
		}
		s.mu.Unlock()

		out = append(out, c)
	}

	return out, errors.Join(errs...)
}

func (c *Changes) compare(old, now map[string]int64) {
	for f, t := range now {
		if was, ok := old[f]; !ok {
			c.Added = append(c.Added, f)
		} else if was != t {
			c.Modified = append(c.Modified, f)
		}
	}

	for f := range old {
		if _, ok := now[f]; !ok {
			c.Removed = append(c.Removed, f)
		}
	}

	slices.Sort(c.Added)
	slices.Sort(c.Removed)
	slices.Sort(c.Modified)
}

// Locate finds a file for the master itself. url has the form salt://reactor/r.sls, with ?saltenv=
// for an environment other than base. path is the path of the file on this host. ok is false if no
// backend has the file.
func (s *Server) Locate(ctx context.Context, url string) (path string, ok bool, err error) {
	rel, ok := strings.CutPrefix(url, "salt://")
	if !ok {
		return "", false, fmt.Errorf("locate %.100q: it does not begin with salt://", url)
	}
	v, err := s.Call(ctx, "_file_find", "", value.NewMap("path", rel))
	if err != nil {
		return "", false, fmt.Errorf("locate %.100q: %w", url, err)
	}
	m, _ := v.(*value.Map)
	return m.Str("path"), m.Str("path") != "", nil
}

// Envs returns the environments of the named backends (runner fileserver.envs).
func (s *Server) Envs(back any) []string { return s.envsOf(back) }

// ClearCache drops all hashes, and the lists of the backends in selection (runner
// fileserver.clear_cache). It returns the names of those backends.
func (s *Server) ClearCache(selection any) []string {
	out := s.Backends(selection)
	s.hasher.forgetAll()
	s.ClearFileListCache(nil, selection)
	return out
}

// ClearFileListCache drops the lists of the given environments; nil means all. It returns the
// environments whose lists were dropped, by backend (runner fileserver.clear_file_list_cache).
func (s *Server) ClearFileListCache(envs []string, back any) map[string][]string {
	chosen := s.chooseBackends(back)
	out := map[string][]string{}
	s.mu.Lock()
	defer s.mu.Unlock()

	for k := range s.cached {
		if (envs == nil || slices.Contains(envs, k.env)) &&
			slices.ContainsFunc(chosen, func(b Backend) bool { return b.Name() == k.backend }) {
			delete(s.cached, k)
			out[k.backend] = append(out[k.backend], k.env)
		}
	}

	for _, v := range out {
		slices.Sort(v)
	}

	return out
}

// Backends returns the names of the backends that selection denotes in Salt's runner; nil means
// all.
func (s *Server) Backends(selection any) (out []string) {
	for _, b := range s.chooseBackends(selection) {
		out = append(out, b.Name())
	}
	return out
}
