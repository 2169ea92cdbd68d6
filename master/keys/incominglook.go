package keys

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"saltern/master/crypt"
)

// look lists the files, from after the call on.
func (in *incoming) look() error {
	return in.looks.do(0, func() error { return in.list(nil, false) })
}

// list brings what is known of the files up to date. With hashes, only files
// that may be about these ids are read. With sync, the names are durable
// afterwards.
func (in *incoming) list(hashes map[string]bool, sync bool) error {
	in.mu.Lock()
	before := map[string]bool{} // those that must be in the list, if they are still there
	for name, b := range in.batches {
		before[name] = b.there
	}
	in.mu.Unlock()

	var entries []entry
	err := retryStale(func() (err error) {
		entries, err = list(in.dir, sync)
		return err
	})
	if err != nil {
		return fmt.Errorf("list new keys: %w", err)
	}

	marks, listed := map[string]bool{}, map[string]bool{}
	var read []*batch
	var partial []string
	var faults []error
	for _, e := range entries {
		switch {
		case removedName.MatchString(e.name):
			marks[e.name] = true
		case incomingName.MatchString(e.name):
			listed[e.name] = true
			if _, known := before[e.name]; known || len(listed) > maxIncoming ||
				hashes != nil && !about(e.name, hashes) {
				continue
			}

			b, err := in.read(e.name)
			switch {
			case b != nil:
				read = append(read, b)
			case !errors.Is(err, os.ErrNotExist): // not whole, or not readable
				partial, faults = append(partial, e.name), append(faults, err)
			}
		}
	}

	in.mu.Lock()
	defer in.mu.Unlock()
	in.takeMarks(marks)
	var fault error
	for i, name := range partial {
		if _, known := in.partial[name]; known {
			continue
		}
		in.partial[name] = time.Now()
		fault = cmp.Or(fault, faults[i])
	}

	if fault != nil {
		in.log.Error("files of new keys cannot be read; the keys are known when they can", "error", fault)
	}

	maps.DeleteFunc(in.partial, func(name string, _ time.Time) bool { return !listed[name] })
	for _, b := range read {
		delete(in.partial, b.name)
		if in.batches[b.name] != nil {
			continue
		}

		in.keep(b)
		for _, c := range b.claims {
			in.touch(c.id)
		}

		poke(in.poked)
	}

	for name, there := range before {
		if b := in.batches[name]; there && !listed[name] && b != nil {
			in.forget(b)
		}
	}

	return nil
}

func (in *incoming) takeMarks(now map[string]bool) {
	for name := range now {
		if _, known := in.marks[name]; known {
			continue
		}

		in.marks[name] = time.Now()
		for _, b := range in.batches {
			if b.token != removedName.FindStringSubmatch(name)[1] {
				continue
			}

			for _, c := range b.claims {
				if c.mark() == name {
					c.void = true
					in.touch(c.id)
				}
			}
		}
	}

	maps.DeleteFunc(in.marks, func(name string, _ time.Time) bool { return !now[name] })
}

// read reads an incoming file. One that is not whole is nil: it is being
// written, and its writer has still to look for others; or he is gone, and
// nobody was told that the keys are stored.
func (in *incoming) read(name string) (*batch, error) {
	data, info, err := readRegular(filepath.Join(in.dir, name), maxBatchFile, false)
	if err != nil {
		return nil, fmt.Errorf("read new keys: %w", err)
	}

	claims, bad, whole := in.parse(data)
	if !whole {
		if time.Since(info.ModTime()) > time.Hour {
			in.log.Warn("removing a file of new keys that was never finished", "path", filepath.Join(in.dir, name))
			_ = os.Remove(filepath.Join(in.dir, name))
		}
		return nil, nil
	}

	if bad > 0 {
		in.log.Warn("ignoring new keys that are none", "path", filepath.Join(in.dir, name), "count", bad)
	}

	m := incomingName.FindStringSubmatch(name)
	b := &batch{
		name:   name,
		when:   m[2],
		token:  m[3],
		claims: claims,
		there:  true,
		since:  time.Now(),
	}

	if m[1] == in.master {
		b.since = time.Time{} // of an earlier life: nobody else will file it
	}

	return b, nil
}

// parse reads the content of an incoming file. It leaves out what is no id or
// no key, and counts it.
func (in *incoming) parse(data []byte) (claims []*claim, bad int, whole bool) {
	var l []incomingKey
	if json.Unmarshal(data, &l) != nil || len(l) > maxBatch {
		return nil, 0, false
	}

	for _, k := range l {
		c := &claim{id: k.ID, pem: crypt.NormalizePEM(k.Pub)}
		switch k.State {
		case Accepted.String():
			c.state = Accepted
		case Pending.String():
			c.state = Pending
		}

		_, err := in.bounds.ParsePublic([]byte(c.pem))
		if ValidID(c.id) != nil || c.state == None || err != nil {
			bad++
			continue
		}

		claims = append(claims, c)
	}

	return claims, bad, true
}
