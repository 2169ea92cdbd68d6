package postgres

// sample is a load and a return that the database has taken, to ask it whether it takes the like still.
type sample struct {
	load, run *record // each may be nil: none is known
}

// maxSample bounds the content of a record of a sample, in bytes.
const maxSample = 16 << 10

// choose remembers the last load and the last return of records that the database has taken.
func (s *sample) choose(records []record) {
	var load, run *record
	for i := len(records) - 1; i >= 0 && (load == nil || run == nil); i-- {
		r := &records[i]
		if len(r.content)+len(r.arguments)+len(r.out) > maxSample {
			continue
		}
		if r.kind == kindReturn && run == nil {
			run = r
		}
		if r.kind != kindReturn && load == nil {
			load = r
		}
	}

	for _, c := range []struct {
		from *record
		to   **record
	}{{load, &s.load}, {run, &s.run}} {
		if c.from == nil {
			continue
		}
		// Records share memory with their batch.
		if copied, err := parseRecord(c.from.pack()); err == nil {
			*c.to = &copied
		}
	}
}
