//go:build e2e

package e2e

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// crashRounds is how often each configuration is killed. E2E_ROUNDS makes
// it more, and E2E_SEED repeats the choices of an earlier run (not its timing).
const crashRounds = 12

// actor owns one stream, or one writer's part of a stream, and remembers what the
// server has acknowledged about it.
type actor interface {
	// setup makes what the actor needs, before the first round.
	setup() error
	// step does one operation. errDown says that the server went away before it
	// answered; the actor remembers that the outcome is open.
	step() error
	// settle looks at what the server holds after a restart, compares it with what
	// was acknowledged, and takes what it finds as the outcome of the open operation.
	settle() error
}

func TestCrash(t *testing.T) {
	rounds, seed := crashRounds, rand.Uint64()
	if s := os.Getenv("E2E_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	if s := os.Getenv("E2E_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("E2E_SEED=%d", seed)
	for i, shards := range []string{"1", "3"} {
		t.Run(shards+" shards", func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			d := newDaemon(t, "--shards", shards)
			crashLoop(t, d, rng, rounds)
		})
	}
}

// crashLoop runs actors, kills the server under them, restarts it and lets them
// compare, over and over.
func crashLoop(t *testing.T, d *daemon, rng *rand.Rand, rounds int) {
	d.start(t, tinyLimits...)
	api := newAPI(d)
	actors := cast(api, rng)
	for _, a := range actors {
		if err := a.setup(); err != nil {
			t.Fatalf("setting up %v: %v", a, err)
		}
	}
	for round := range rounds {
		life := time.Duration(20+rng.IntN(1200)) * time.Millisecond
		run(t, d, api, actors, life)
		// Every other life has the default limits: the data outlives its settings.
		limits := tinyLimits
		if round%2 == 0 {
			limits = nil
		}
		for rng.IntN(3) == 0 { // the server may also be killed while it recovers
			d.launch(t, limits...)
			pause(t.Context(), time.Duration(rng.IntN(60))*time.Millisecond)
			d.kill(t)
		}
		api.revive()
		d.start(t, limits...)
		settle(t, actors, round, life)
		if t.Failed() {
			return
		}
	}
	d.stop(t)
	d.start(t)
	settle(t, actors, rounds, 0)
	d.stop(t)
}

// run lets the actors work for a while and then kills the server.
func run(t *testing.T, d *daemon, api *api, actors []actor, life time.Duration) {
	t.Helper()
	var wg sync.WaitGroup
	for _, a := range actors {
		wg.Go(func() {
			for {
				err := a.step()
				if errors.Is(err, errDown) {
					return
				}
				if err != nil {
					t.Errorf("%v: %v", a, err)
					return
				}
			}
		})
	}
	pause(t.Context(), life)
	api.condemn()
	d.kill(t)
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// settle lets all actors look at what is left.
func settle(t *testing.T, actors []actor, round int, life time.Duration) {
	t.Helper()
	var wg sync.WaitGroup
	for _, a := range actors {
		wg.Go(func() {
			if err := a.settle(); err != nil {
				t.Errorf("round %d, killed after %v: %v: %v", round, life, a, err)
			}
		})
	}
	wg.Wait()
}

// cast makes the actors; each gets a source of chances of its own, so that a seed
// repeats each one's choices.
func cast(api *api, rng *rand.Rand) []actor {
	var actors []actor
	chance := func() *rand.Rand { return rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())) }
	for i := range 3 {
		actors = append(actors, &lonelyWriter{api: api, rng: chance(), name: "lonely-" + strconv.Itoa(i)})
	}
	crowded := &crowdedStream{api: api, name: "crowded"}
	for i := range 4 {
		actors = append(actors, &crowdedWriter{stream: crowded, rng: chance(), id: i})
	}
	shared := &crowdedStream{api: api, name: "produced"}
	for i := range 4 {
		actors = append(actors, &producer{stream: shared, rng: chance(), id: i})
	}
	for i := range 2 {
		actors = append(actors, &jsonProducer{api: api, rng: chance(), name: "json-" + strconv.Itoa(i)})
	}
	for i := range 4 {
		actors = append(actors, &lifecycle{api: api, rng: chance(), name: "life-" + strconv.Itoa(i)})
	}
	for i := range 2 {
		actors = append(actors, &forker{api: api, rng: chance(), name: "fork-" + strconv.Itoa(i)})
	}
	return actors
}
