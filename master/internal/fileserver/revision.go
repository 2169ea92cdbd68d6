package fileserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// Revision returns a short hash over the names and modification times of all files of the backend
// roots, or "" if that backend is off. The hash does not show a change that keeps both, nor a
// change of a file outside of the roots that a link reaches. Revision walks through all
// directories.
func (s *Server) Revision(ctx context.Context) (string, error) {
	for _, b := range s.backends {
		if b.Name() != "roots" {
			continue
		}

		times, err := b.Times(ctx)
		if err != nil {
			return "", fmt.Errorf("revision of the files below file_roots: %w", err)
		}
		h := sha256.New()
		for _, name := range slices.Sorted(maps.Keys(times)) {
			fmt.Fprintf(h, "%q %d\n", name, times[name])
		}
		return "files " + hex.EncodeToString(h.Sum(nil)[:6]), nil
	}

	return "", nil
}
