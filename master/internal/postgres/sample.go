package postgres

// sample is a load, a return and an event that the database has taken, to ask it whether it takes the like still.
type sample struct {
	load, run, event *record // each may be nil: none is known
}

// maxSample bounds the content of a record of a sample, in bytes.
const maxSample = 16 << 10

// choose remembers the last load, the last return and the last event of records that the database has taken.
func (s *sample) choose(records []record) {
	var fresh sample
	for i := range records {
		r := &records[i]
		if len(r.content)+len(r.arguments)+len(r.out) > maxSample {
			continue
		}
		switch r.kind {
		case kindReturn:
			fresh.run = r
		case kindEvent:
			fresh.event = r
		default:
			fresh.load = r
		}
	}

	for _, c := range []struct {
		from *record
		to   **record
	}{{fresh.load, &s.load}, {fresh.run, &s.run}, {fresh.event, &s.event}} {
		if c.from == nil {
			continue
		}
		// Records share memory with their batch.
		if copied, err := parseRecord(c.from.pack()); err == nil {
			*c.to = &copied
		}
	}
}
