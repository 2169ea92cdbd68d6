package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// maxFile bounds the file in bytes. When the file is full, it is renamed to the older file, of
// which only one is kept.
const maxFile = 512 << 10

// Book is the file of events. It is safe for concurrent use.
type Book struct {
	path string
	mu   sync.Mutex
}

// newBook returns the book in the file path, which need not exist.
func newBook(path string) *Book { return &Book{path: path} }

// Append adds events. It does not sync the file, so the last events before a power cut may be lost.
func (b *Book) Append(events []Event) error {
	if len(events) == 0 {
		return nil
	}

	var text []byte
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("history: %w", err)
		}
		text = append(append(text, line...), '\n')
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if fi, err := os.Stat(b.path); err == nil && fi.Size() > maxFile {
		if err := os.Rename(b.path, b.path+".1"); err != nil {
			return fmt.Errorf("history: %w", err)
		}
	}

	f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}

	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("history: %w", err)
	}

	return nil
}

// Last returns the events that q selects, the oldest first. It omits unreadable lines, which a
// power cut may have left.
func (b *Book) Last(q Query) ([]Event, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := []Event{}
	for _, path := range []string{b.path + ".1", b.path} {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("history: %w", err)
		}

		for line := range bytes.Lines(text) {
			var e Event
			if json.Unmarshal(line, &e) == nil && !e.Time.Before(q.Since) {
				events = append(events, e)
			}
		}
	}

	return events[max(0, len(events)-q.Last):], nil
}
