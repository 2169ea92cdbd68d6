package keys

import (
	"context"
	"log/slog"
	"time"

	"saltern/master/crypt"
)

// At returns a configuration in which now provides the time.
func At(c Config, now func() time.Time) Config {
	c.now = now
	return c
}

// AsOnVolume makes a store of a local folder follow listings, as on a volume.
func (s *Store) AsOnVolume() { s.onVolume = true }

// OnVolume makes a store of a local folder behave as on a volume.
func OnVolume(c Config) Config {
	c.volume = func(string) bool { return true }
	return c
}

// FileAfter sets when new keys become files, how long their batches stay, and when this store files
// batches of other masters.
func (s *Store) FileAfter(quiet, linger, foreign time.Duration) {
	s.incoming.quiet = quiet
	s.incoming.late = quiet
	s.incoming.linger = linger
	s.incoming.foreign = foreign
	s.incoming.unreadFor, s.incoming.retry = time.Second, 50*time.Millisecond
}

// FillIncoming uses up the room for new keys, or makes it free again.
func (s *Store) FillIncoming(full bool) {
	s.incoming.mu.Lock()
	defer s.incoming.mu.Unlock()
	s.incoming.ownBatches -= maxBatches
	if full {
		s.incoming.ownBatches += 2 * maxBatches
	}
}

// FileAll creates the files of all new keys that are known, whichever master has stored them.
func (s *Store) FileAll() error {
	if err := s.incoming.listFresh(); err != nil {
		return err
	}

	s.incoming.mu.Lock()
	var all []*batch
	for _, b := range s.incoming.batches {
		all = append(all, b)
	}
	s.incoming.mu.Unlock()

	for _, b := range all {
		if err := s.fileBatch(context.Background(), b); err != nil {
			return err
		}
	}

	return nil
}

// ShortHash returns the hash that represents an id in the name of an incoming file.
func ShortHash(id string) string { return shortHash(id) }

// ParseIncoming returns the states of the ids in the content of an incoming file, and the number of
// keys in it.
func ParseIncoming(data []byte) (map[string]State, int) {
	in := newIncoming("", "", 0, crypt.DefaultBounds, slog.New(slog.DiscardHandler))
	claims, _, _ := in.parseBatch(data)
	out := map[string]State{}
	for _, c := range claims {
		out[c.id] = c.state
	}
	return out, len(claims)
}
