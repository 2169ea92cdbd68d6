package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/supervisor/layout"
	"saltern/supervisor/marks"
	"saltern/supervisor/settings"
	"saltern/supervisor/storage"
)

const (
	// marksFile is a file in the directory "storage" of the data directory. It holds the mark of
	// that directory, and the marks that this node remembers of all nodes.
	marksFile = "marks.json"
	// copyMarkFile is a file beside the copies of the volume. It holds the mark of these copies.
	copyMarkFile = ".marks.json"
	// putBackFile holds the state of the repair of a disk that was put back.
	putBackFile = "put-back.json"
)

// markDisk stores the marks of this node on its disks. It is safe for concurrent use.
type markDisk struct {
	settings *settings.Settings
	start    string

	writing sync.Mutex // held while files are written; a write may hang

	mu     sync.Mutex
	own    map[marks.Place]marks.History
	opened map[marks.Place]time.Time // when the mark of each place was last raised before this start
	copies bool
	raised time.Time
	memory marks.Memory // the marks of all nodes, as they are in marksFile
}

// dataMarks is the content of marksFile.
type dataMarks struct {
	Own    marks.History `json:"own"`
	Memory marks.Memory  `json:"memory"`
}

func (d *markDisk) filePath(name string) string {
	return filepath.Join(d.settings.DataDir, "storage", name)
}

func (d *markDisk) copyMark() string { return filepath.Join(d.settings.Storage.Bricks, copyMarkFile) }

// readMarks reads the marks and the state of a repair. If the file is damaged, its content counts
// as lost: then the other nodes remember a higher mark, and this node copies its data from them.
func (d *markDisk) readMarks(self string) (marks.Memory, putBack, error) {
	if err := os.MkdirAll(filepath.Join(d.settings.DataDir, "storage"), 0o700); err != nil {
		return nil, putBack{}, fmt.Errorf("marks of this node: %w", err)
	}

	var data dataMarks
	var bricks marks.History
	var record putBack
	if readJSON(d.filePath(marksFile), &data) != nil || errors.Join(data.Own.Check(), data.Memory.Check()) != nil {
		data = dataMarks{}
	}

	if readJSON(d.copyMark(), &bricks) != nil || bricks.Check() != nil {
		bricks = marks.History{}
	}

	if readJSON(d.filePath(putBackFile), &record) != nil {
		record = putBack{}
	}

	if data.Memory == nil {
		data.Memory = marks.Memory{}
	}

	d.own = map[marks.Place]marks.History{marks.Data: data.Own, marks.Bricks: bricks}
	d.opened = map[marks.Place]time.Time{marks.Data: data.Own.At, marks.Bricks: bricks.At}
	d.memory = data.Memory.Clone()
	return data.Memory, record, nil
}

// raiseMarks raises the mark of each place.
func (d *markDisk) raiseMarks(now time.Time) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	copies := d.settings.OnVolume() && len(storage.Copies(d.settings.Storage.Bricks, d.settings.Storage.Volume)) > 0

	d.mu.Lock()
	d.copies, d.raised = copies, now
	data := d.own[marks.Data].Raise(d.start, now)
	bricks := d.own[marks.Bricks].Raise(d.start, now)
	d.mu.Unlock()

	err := d.writeData(data)
	if copies { // if copies is false, the disk with the copies may not be mounted yet
		err = errors.Join(err, d.writeBricks(bricks))
	}

	return err
}

// raiseWhenDue calls raiseMarks, at most once every markEvery.
func (d *markDisk) raiseWhenDue(now time.Time) error {
	d.mu.Lock()
	due := now.Sub(d.raised) >= markEvery
	d.mu.Unlock()
	if !due {
		return nil
	}
	return d.raiseMarks(now)
}

// renewBricks begins a new generation of the copies: what nodes remember of earlier generations no
// longer counts.
func (d *markDisk) renewBricks(generation uint64, now time.Time) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	copies := len(storage.Copies(d.settings.Storage.Bricks, d.settings.Storage.Volume)) > 0
	d.mu.Lock()
	d.copies = copies
	d.mu.Unlock()
	return d.writeBricks(marks.History{Generation: generation}.Raise(d.start, now))
}

// renewData begins a new generation of the data directory, after the one that nodes remember.
func (d *markDisk) renewData(remembered marks.History, now time.Time) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	return d.writeData(d.markOf(marks.Data).Renew(remembered).Raise(d.start, now))
}

// remember saves what this node remembers of all nodes.
func (d *markDisk) remember(m marks.Memory) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	d.memory = m
	d.mu.Unlock()
	return d.writeData(d.markOf(marks.Data))
}

// writeData and writeBricks write the mark to the disk before they make it visible to others. The
// caller holds d.writing.
func (d *markDisk) writeData(own marks.History) error {
	d.mu.Lock()
	memory := d.memory
	d.mu.Unlock()
	if err := writeJSON(d.filePath(marksFile), dataMarks{own, memory}); err != nil {
		return err
	}
	d.setMark(marks.Data, own)
	return nil
}

func (d *markDisk) writeBricks(own marks.History) error {
	if err := writeJSON(d.copyMark(), own); err != nil {
		return err
	}
	d.setMark(marks.Bricks, own)
	return nil
}

func (d *markDisk) setMark(place marks.Place, own marks.History) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.own[place] = own
}

// markOf returns the mark of a place.
func (d *markDisk) markOf(place marks.Place) marks.History {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.own[place]
}

// allMarks returns the marks of all places that this node has.
func (d *markDisk) allMarks() map[marks.Place]marks.History {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[marks.Place]marks.History{marks.Data: d.own[marks.Data]}
	if !d.own[marks.Bricks].IsZero() {
		out[marks.Bricks] = d.own[marks.Bricks]
	}
	return out
}

// hasCopy reports whether this node's disk has a copy of the volume.
func (d *markDisk) hasCopy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.copies
}

// lastCounted returns when the mark of the place that a stage repairs was last raised before this
// start.
func (d *markDisk) lastCounted(stage string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if stage == stageData {
		return d.opened[marks.Data]
	}
	return d.opened[marks.Bricks]
}

func (d *markDisk) savePutBack(p putBack) error { return writeJSON(d.filePath(putBackFile), p) }

// forgetPutBack deletes putBackFile.
func (d *markDisk) forgetPutBack() error {
	if err := os.Remove(d.filePath(putBackFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func readJSON(path string, into any) error {
	b, err := durable.Read(path, marks.MaxReport)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = layout.WriteFile(path, append(b, '\n'), 0o600)
	return err
}
