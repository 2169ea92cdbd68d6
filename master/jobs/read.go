package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"saltern/internal/durable"
	"saltern/master/history/summary"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// Load implements Cache (local_cache.get_load).
func (c *Local) Load(ctx context.Context, jid string) (*value.Map, error) {
	if err := checkJID(jid); err != nil {
		return nil, err
	}

	open := c.overlay.snapshot(jid)
	dir := c.files.jobDir(jid)
	kept := c.keptLoad(jid)
	var v any
	var ok bool
	var err error
	switch {
	case open.load != nil:
		ok = true
		v, err = msgpack.Decode(open.load.a, msgpack.DefaultLimits)
	case kept.load != nil:
		ok = true
		v, err = msgpack.Decode(kept.load.a, msgpack.DefaultLimits)
	default:
		v, ok, err = readValue(dir + "/" + loadFile)
		if _, unread := errors.AsType[*fs.PathError](err); err != nil && !unread || !ok && kept.err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrBrokenLoad, jid, cmp.Or(err, kept.err))
		}
	}

	if err != nil || !ok {
		return nil, err
	}

	load, isMap := v.(*value.Map)
	if !isMap {
		return nil, fmt.Errorf("%w: %s: it is no map", ErrBrokenLoad, jid)
	}

	var lists []any
	names, err := readNames(dir)
	if err != nil {
		return nil, err
	}

	for _, e := range names {
		if n := e.Name(); n == minionsFile || strings.HasPrefix(n, ".minions.") && strings.HasSuffix(n, ".p") {
			list, _, err := readValue(dir + "/" + n)
			if err != nil {
				c.log.Warn("job cache: minion list left out", "jid", jid, "error", err)
				continue
			}
			lists = append(lists, list)
		}
	}

	for _, r := range append(kept.minions, open.minions...) {
		list, err := msgpack.Decode(r.a, msgpack.DefaultLimits)
		if err == nil {
			lists = append(lists, list)
		}
	}

	if all := unionTexts(lists...); len(all) > 0 {
		load.Set("Minions", value.List(all))
	}

	return load, nil
}

// Returns implements Cache (local_cache.get_jid). It skips and logs returns that cannot be read.
func (c *Local) Returns(ctx context.Context, jid string) (*value.Map, error) {
	if err := checkJID(jid); err != nil {
		return nil, err
	}

	out := &value.Map{}
	open := c.overlay.snapshot(jid) // take the snapshot before reading the files, see overlay
	dir := c.files.jobDir(jid)
	names, err := readNames(dir)
	if err != nil {
		return nil, err
	}

	for _, e := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		id := e.Name()
		if strings.HasPrefix(id, ".") || !e.IsDir() || open.returns[id] != nil {
			continue
		}

		v, ok, err := readValue(dir + "/" + id + "/" + returnFile)
		if err != nil {
			c.log.Warn("job cache: return left out", "jid", jid, "minion", id, "error", err)
		}

		if err != nil || !ok {
			continue
		}

		ret := returnMap(v)
		if v, ok, err := readValue(dir + "/" + id + "/" + outFile); ok && err == nil {
			ret.Set("out", v)
		}

		out.Set(id, ret)
	}

	_ = c.home.each(jid, returnRecords, func(r *record) { // it has logged the error
		if open.returns[r.id] == nil {
			c.setReturn(out, r)
		}
	})
	for _, r := range open.returns {
		c.setReturn(out, r)
	}

	return out, ctx.Err()
}

// setReturn sets the return of a record in the returns of its job.
func (c *Local) setReturn(returns *value.Map, r *record) {
	v, err := msgpack.Decode(r.a, msgpack.DefaultLimits)
	if err != nil {
		c.log.Warn("job cache: return left out", "jid", r.jid, "minion", r.id, "error", err)
		return
	}

	ret := returnMap(v)
	if r.b != nil {
		if v, err := msgpack.Decode(r.b, msgpack.DefaultLimits); err == nil {
			ret.Set("out", v)
		}
	}
	returns.Set(r.id, ret)
}

// Returned returns the minions whose returns of a job are stored.
func (c *Local) Returned(ctx context.Context, jid string) (map[string]bool, error) {
	if err := checkJID(jid); err != nil {
		return nil, err
	}

	out := map[string]bool{}
	for id := range c.overlay.snapshot(jid).returns { // take the snapshot before reading the files, see overlay
		out[id] = true
	}

	_ = c.home.each(jid, returnHeads, func(r *record) { out[r.id] = true }) // it has logged the error
	names, err := readNames(c.files.jobDir(jid))
	if err != nil {
		return nil, err
	}

	for _, e := range names {
		// A crash or a full disk may leave a folder without the return.
		isReturn := e.IsDir() && !strings.HasPrefix(e.Name(), ".")
		if isReturn && !out[e.Name()] && exists(c.files.jobDir(jid)+"/"+e.Name()+"/"+returnFile) {
			out[e.Name()] = true
		}
	}

	return out, ctx.Err()
}

// returnMap returns the content of return.p as a map. Very old files contain the returned value
// itself and no map.
func returnMap(v any) *value.Map {
	if m, ok := v.(*value.Map); ok {
		if _, ok := m.Get("return"); ok {
			m.Delete(summary.RevisionField) // of use to the history only
			return m
		}
	}
	return value.NewMap("return", v)
}

// Endtime implements Cache (local_cache.get_endtime).
func (c *Local) Endtime(ctx context.Context, jid string) (string, error) {
	if err := checkJID(jid); err != nil {
		return "", err
	}

	open := c.overlay.snapshot(jid)
	if open.endtime != nil {
		return string(open.endtime.a), nil
	}

	if c.cfg.Endtimes && len(open.returns) > 0 {
		last := slices.MaxFunc(slices.Collect(maps.Values(open.returns)),
			func(a, b *record) int { return cmp.Compare(a.time, b.time) })
		return endtimeOf(last), nil
	}

	if end := c.keptEnd(jid); end != nil {
		return strings.Trim(string(end.a), "\n"), nil
	}

	b, err := durable.Read(c.files.jobDir(jid)+"/"+endtimeFile, maxFile)
	if missing(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("job cache: %w", err)
	}

	return strings.Trim(string(b), "\n"), nil
}

// Each implements Cache (local_cache._walk_through). It skips and logs loads that cannot be read.
func (c *Local) Each(ctx context.Context, visit func(Job) error) error {
	open := c.overlay.openLoads()
	for jid, b := range open {
		v, err := msgpack.Decode(b, msgpack.DefaultLimits)
		if load, ok := v.(*value.Map); ok && err == nil {
			if err := visit(Job{jid, load}); err != nil {
				return err
			}
		}
	}

	if err := c.eachKept(ctx, open, visit); err != nil {
		return err
	}

	return c.eachDir(ctx, func(dir string) error {
		j, ok := c.readLoad(dir)
		if _, seen := open[j.JID]; !ok || seen || c.home.holdsLoad(j.JID) {
			return nil
		}
		return visit(j)
	})
}

// eachDir calls visit for the directory of every job on disk. It skips jobs that are removed while
// it runs.
func (c *Local) eachDir(ctx context.Context, visit func(dir string) error) error {
	tops, err := readNames(c.files.dir)
	if err != nil {
		return err
	}

	for _, top := range tops {
		if !top.IsDir() || len(top.Name()) != 2 {
			continue
		}

		path := c.files.dir + "/" + top.Name()
		finals, err := os.ReadDir(path)
		if err != nil && !missing(err) {
			return fmt.Errorf("job cache: %w", err)
		}

		for _, final := range finals {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !final.IsDir() {
				continue
			}

			if err := visit(path + "/" + final.Name()); err != nil {
				return err
			}
		}
	}

	return nil
}
