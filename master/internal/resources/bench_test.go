package resources

import (
	"fmt"
	"sync"
	"testing"
)

// BenchmarkRegisterAtOnce: so many minions register 20 resources each, 16 at a time.
func BenchmarkRegisterAtOnce(b *testing.B) {
	for _, count := range []int{300, 1000, 3000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			minions := make([]string, count)
			for i := range minions {
				minions[i] = fmt.Sprintf("m%04d", i)
			}

			for b.Loop() {
				r := registry(b, b.TempDir(), minions...)
				queue := make(chan string)
				var workers sync.WaitGroup
				for range 16 {
					workers.Go(func() {
						for id := range queue {
							ids := make([]string, 20)
							for i := range ids {
								ids[i] = fmt.Sprintf("%s-r%d", id, i)
							}
							if err := r.Register(id, types("dummy", ids...), nil); err != nil {
								b.Error(err)
							}
						}
					})
				}

				for _, id := range minions {
					queue <- id
				}
				close(queue)
				workers.Wait()

				if n := r.Stats().Resources; n != 20*count {
					b.Fatalf("%d resources", n)
				}
			}
		})
	}
}
