package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"saltern/test/load/proctree"
)

// row is how both programs are after some of the requests.
type row struct {
	requests    int64
	rate        float64
	api, master proctree.Usage
}

func (r row) String() string {
	return fmt.Sprintf("| %d | %.0f | %.1f | %d | %d | %.1f | %d | %d |", r.requests, r.rate,
		r.api.PSS, r.api.Threads, r.api.Descriptors, r.master.PSS, r.master.Threads, r.master.Descriptors)
}

// least looks at a process for two seconds and gives the least that it held.
func least(ctx context.Context, pid int) (proctree.Usage, error) {
	var out proctree.Usage
	for i := range 5 {
		u, err := proctree.Look(pid)
		if err != nil {
			return out, fmt.Errorf("look at a program: %w", err)
		}

		if i == 0 {
			out = u
		}

		out.PSS = min(out.PSS, u.PSS)
		out.Descriptors = min(out.Descriptors, u.Descriptors)
		out.Threads = min(out.Threads, u.Threads)
		if err := rest(ctx, 400*time.Millisecond); err != nil {
			return out, err
		}
	}

	return out, nil
}

// verdict compares the last quarter with the second, by their medians.
func verdict(o options, rows []row) error {
	quarter := len(rows) / 4
	if quarter == 0 {
		return fmt.Errorf("%d readings are too few to compare", len(rows))
	}

	second, last := rows[quarter:2*quarter], rows[len(rows)-quarter:]
	var errs []error
	for name, of := range map[string]func(row) proctree.Usage{
		"salt-api": func(r row) proctree.Usage { return r.api }, "salt-master": func(r row) proctree.Usage { return r.master },
	} {
		was, is := middle(second, of), middle(last, of)
		fmt.Printf("%s: %.1f MiB in the second quarter, %.1f MiB in the last; %d and %d descriptors\n", name,
			was.PSS, is.PSS, was.Descriptors, is.Descriptors)
		if is.PSS > was.PSS*(1+o.grow/100)+o.bound {
			errs = append(errs, fmt.Errorf("%s: memory grew from %.1f to %.1f MiB", name, was.PSS, is.PSS))
		}

		if is.Descriptors > was.Descriptors+o.fds {
			errs = append(errs, fmt.Errorf("%s: descriptors grew from %d to %d", name, was.Descriptors, is.Descriptors))
		}
	}

	return errors.Join(errs...)
}

// middle is the median of memory, since one long list that is on its way shows in one
// reading, and the most descriptors.
func middle(rows []row, of func(row) proctree.Usage) (out proctree.Usage) {
	var pss []float64
	for _, r := range rows {
		u := of(r)
		pss = append(pss, u.PSS)
		out.Descriptors = max(out.Descriptors, u.Descriptors)
	}
	slices.Sort(pss)
	out.PSS = pss[len(pss)/2]
	return out
}
