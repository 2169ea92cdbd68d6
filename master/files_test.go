package master

import (
	"testing"
	"time"

	"saltern/master/conf"
)

// Where Salt's own master may take the place of this one, and where jobs are kept for ever, jobs are files.
func TestWritesJobFiles(t *testing.T) {
	for name, test := range map[string]struct {
		segments, plainPeers bool
		keep                 time.Duration
		want                 bool
	}{
		"segments":               {segments: true, keep: time.Hour},
		"no segments":            {keep: time.Hour, want: true},
		"jobs are kept for ever": {segments: true, want: true},
		"beside masters of Salt": {segments: true, plainPeers: true, keep: time.Hour, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &conf.Master{}
			c.JobSegments = test.segments
			c.ClusterPlainPeers = test.plainPeers
			c.KeepJobs = test.keep
			if got := writesJobFiles(c); got != test.want {
				t.Errorf("%v", got)
			}
		})
	}
}
