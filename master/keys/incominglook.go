package keys

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/master/crypt"
)

// listFresh lists the incoming files. The listing begins after the call, so the caller sees every
// file that existed at the call.
func (in *incoming) listFresh() error {
	return in.listings.do(0, func() error { return in.listFiles(nil, false) })
}

// listFiles updates the known incoming files from a listing. If hashes is not nil, it reads only
// files that may concern these ids. If sync is set, the listed names are durable when it returns.
func (in *incoming) listFiles(hashes map[string]bool, sync bool) error {
	in.mu.Lock()
	// names of known batches, and whether each exists; a known batch that is not in the listing was
	// removed
	before := map[string]bool{}
	for name, b := range in.batches {
		before[name] = b.exists
	}
	in.mu.Unlock()

	var entries []entry
	err := retryStale(func() (err error) {
		entries, err = listFolder(in.dir, sync)
		return err
	})
	if err != nil {
		return fmt.Errorf("list new keys: %w", err)
	}

	found := in.readListed(entries, before, hashes)

	in.mu.Lock()
	defer in.mu.Unlock()
	in.takeMarks(found.marks)
	in.takePartial(found)
	in.takeBatches(found.batches)

	for name, there := range before {
		if b := in.batches[name]; there && !found.listed[name] && b != nil {
			in.forget(b)
		}
	}

	return nil
}

// incomingListing is the result of listing the folder.
type incomingListing struct {
	marks   map[string]bool  // names of removed_ files
	listed  map[string]bool  // names of incoming files
	batches []*batch         // contents of the files that were read
	partial map[string]error // errors of incomplete or unreadable files, by name
}

// readListed reads the incoming files among entries, except those in skip. If hashes is not nil, it
// reads only files that may concern these ids.
func (in *incoming) readListed(entries []entry, skip, hashes map[string]bool) incomingListing {
	found := incomingListing{
		marks:   map[string]bool{},
		listed:  map[string]bool{},
		partial: map[string]error{},
	}

	for _, e := range entries {
		if removedName.MatchString(e.name) {
			found.marks[e.name] = true
			continue
		}
		if !incomingName.MatchString(e.name) {
			continue
		}

		found.listed[e.name] = true
		_, isKnown := skip[e.name]
		unconcerned := hashes != nil && !mayConcern(e.name, hashes)
		if isKnown || unconcerned || len(found.listed) > maxIncoming {
			continue
		}

		b, err := in.readBatch(e.name)
		switch {
		case b != nil:
			found.batches = append(found.batches, b)
		case !errors.Is(err, os.ErrNotExist):
			found.partial[e.name] = err
		}
	}

	return found
}

// takePartial records the incomplete files, and logs an error if one of them is new and unreadable.
// The caller holds mu.
func (in *incoming) takePartial(found incomingListing) {
	var fault error
	for _, name := range slices.Sorted(maps.Keys(found.partial)) {
		if _, known := in.partial[name]; known {
			continue
		}
		in.partial[name] = time.Now()
		fault = cmp.Or(fault, found.partial[name])
	}

	if fault != nil {
		in.log.Error("files of new keys cannot be read; the keys are known when they can", "error", fault)
	}

	maps.DeleteFunc(in.partial, func(name string, _ time.Time) bool { return !found.listed[name] })
}

// takeBatches adds batches that were read, and marks their ids as changed. The caller holds mu.
func (in *incoming) takeBatches(batches []*batch) {
	for _, b := range batches {
		delete(in.partial, b.name)
		if in.batches[b.name] != nil {
			continue
		}

		in.rememberBatch(b)
		for _, c := range b.claims {
			in.markChanged(c.id)
		}

		signal(in.batchSignal)
	}
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
				if c.markName() == name {
					c.removed = true
					in.markChanged(c.id)
				}
			}
		}
	}

	maps.DeleteFunc(in.marks, func(name string, _ time.Time) bool { return !now[name] })
}

// readBatch reads an incoming file. It returns nil for an incomplete file: either its writer is
// still writing the file and will check for other claims afterwards, or the writer died and has
// acknowledged no key.
func (in *incoming) readBatch(name string) (*batch, error) {
	data, info, err := readRegular(filepath.Join(in.dir, name), maxBatchFile, false)
	if err != nil {
		return nil, fmt.Errorf("read new keys: %w", err)
	}

	claims, bad, whole := in.parseBatch(data)
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
		name:     name,
		timeText: m[2],
		token:    m[3],
		claims:   claims,
		exists:   true,
		since:    time.Now(),
	}

	if m[1] == in.master {
		b.since = time.Time{} // this master wrote the file before a restart: no other master will file it soon
	}

	return b, nil
}

// parseBatch parses the content of an incoming file. It skips invalid ids and keys; bad is the
// number of skipped keys. complete is false if the file is incomplete.
func (in *incoming) parseBatch(data []byte) (claims []*claim, bad int, complete bool) {
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
