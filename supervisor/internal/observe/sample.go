package observe

import (
	"bytes"
	"os"
	"strconv"

	"saltern/internal/durable"
	"saltern/supervisor/history"
	"saltern/supervisor/status"
)

// sample returns the values of one round for the metrics history.
func sample(f facts, d status.Document) history.Sample {
	s := history.Sample{At: d.Time, Minions: d.Minions.Connected}
	if f.observed && f.front == nil && f.round > 0 {
		s.Latency = &f.round
	}

	if d.Master != nil {
		s.Returns = &d.Master.Returns
	}

	pids := []int{os.Getpid()}
	for _, i := range f.services {
		if i.PID > 0 {
			pids = append(pids, i.PID)
		}
	}

	s.Memory = func() (all uint64) {
		for _, pid := range pids {
			all += resident("/proc/" + strconv.Itoa(pid) + "/statm")
		}
		return all
	}

	return s
}

// resident returns the resident memory of a process in bytes, from the text of its statm (proc(5)),
// or 0 if the process has ended.
func resident(statm string) uint64 {
	b, err := durable.Read(statm, 256)
	if err != nil {
		return 0
	}
	fields := bytes.Fields(b)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 50)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
