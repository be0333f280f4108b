/*
 * A backfill job as a model: its windows, each with a checkpoint of its own in
 * the transaction of its events, and the job's state. A pause is an arbitrarily
 * long gap between two steps; a process that was killed is one that never goes
 * on. A window has no copy of its checkpoint in Redis.
 *
 * What is modelled
 *   - a job of two windows of NPOS pages, run one after the other; the first
 *     process finds it begun, each later one resumes it, at any moment: the
 *     group that keeps them apart is for liveness, safety must not depend on it;
 *   - Kafka: a transactional.id for each window and one for the job, fencing by
 *     "last InitProducerID wins", EndTxn whose request or reply is lost;
 *   - the topic, which may be made again; the API, whose key may be another
 *     tenant's from some moment on; an operator who cancels.
 *
 * Which function carries which step (file in bridge, functions, step)
 *   backfill/resume.go       Resume, resumable          a process begins
 *   backfill/jobs.go         List                       the source, by checkpoints
 *   backfill/run.go          runAll, runWindow          which windows are left
 *   engine/recover.go        recover, verify            a window's session
 *   engine/topic.go          checkTopics                the topic of the job
 *   backfill/run.go          Recover, Decode            checkpoints and pages of another source
 *   windows/range.go         Fetch                      a page of a list that is no cursor
 *   engine/stream.go         publish                    a window's transaction
 *   backfill/run.go          windowEnded, done          the job
 *   kafkasink/jobs.go        attempt, takeJob           a change of the job
 *
 * Not modelled: windows that run at a time (each is a stream of its own), what
 * is inside a page, the plan before it is committed, and the range: whether the
 * live stream publishes it is decided before the job begins; whether another
 * backfill does, in the transaction that begins it (kafkasink/jobs.go Begin).
 *
 * Assertions
 *   ONCE    a page is published once, and none is left out
 *   SOURCE  all of the job is of one tenant
 *   DONE    the job is done only if each window has read its last page, it was
 *           not cancelled, and the topic was the job's when the process that
 *           says so had begun
 *   CANCEL  a process that comes after the cancellation begins no window
 *
 * Variants. Each takes one rule away and must be found: they are the test of
 * this model. TestModel reads this list.
 *   CHECKPOINT_LATER  the window's checkpoint is committed after its events
 *   CHECKPOINT_FIRST  the window's checkpoint is committed before its events
 *   NO_FENCE          two processes of a window do not fence each other
 *   READ_FIRST        the window's checkpoint is read before InitProducerID
 *   ASSUME_ABORT      in doubt the window goes on from memory
 *   ENDED_EARLY       a window is recorded as ended before its last commit
 *   DONE_EARLY        the job is done when its last window has begun
 *   NO_TOPIC_ID       a window does not compare the topic with the job's
 *   NO_LAST_LOOK      where all windows had ended, nothing looks at the topic
 *   NO_SOURCE         a page is not compared with the job's source
 *   NO_SESSION_SOURCE  a window's checkpoint is not compared with the job's source
 *   SOURCE_FORGOTTEN  a process that resumes does not ask the checkpoints for it
 *   CANCEL_BLIND      done does not look at the state
 *   RESUME_CANCELLED  a job is resumed whatever its state
 *   BLIND_CHANGE      a change of the job goes on from what was read at the start
 *
 * Configurations, to be combined with a variant
 *   NPOS, RUNS, FAULTS  pages of a window, processes, lost requests and replies
 *   CANCEL, REMAKE, TENANT  the job may be cancelled, the topic made again, the
 *                     tenant another one
 */
#ifndef NPOS
#define NPOS 2
#endif
#ifndef RUNS
#define RUNS 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#define NOBODY 9
#define FAULT (faults > 0) -> faults = faults - 1

#define RUNNING 0
#define DONE 1
#define CANCELLED 2

/* ---- windows: their checkpoints and transactional.ids ---- */
byte ckpt[2];                     /* pages that the committed checkpoint has */
byte source[2];                   /* its tenant; 0 is none yet */
byte producer[2];                 /* whose session is valid */

/* ---- the job ---- */
byte state = RUNNING;
bool ended[2];

/* ---- the topic ---- */
bool remade = false;
byte pages[2];                    /* of each window, ever published */
byte tenant = 1, published = 0;   /* of the API, of what is published */

byte started = 0, faults = FAULTS;
bool cancelled = false;

inline put_page() {
  assert(pages[w] == at);                              /* ONCE */
  pages[w] = pages[w] + 1;
  assert(published == 0 || published == src);           /* SOURCE */
  published = src
}
inline put_checkpoint() { ckpt[w] = at + 1; source[w] = src }

#ifdef NO_FENCE
#define FENCED false
#else
#define FENCED (producer[w] != me)
#endif

/* EndTxn(commit) of a window */
#define END_TXN(commit) \
  if :: d_step { commit }                              /* the reply arrives */ \
     :: FAULT; d_step { commit }; goto doubt           /* the reply is lost */ \
     :: FAULT; goto doubt                              /* the request is lost */ \
  fi

/* A change of the job reads it and commits in one transaction; in doubt it is
 * repeated, with the same result. Its reply or request may be lost. */
#define CHANGE(change) \
  do \
  :: atomic { change; break } \
  :: atomic { FAULT; change } \
  :: atomic { FAULT } \
  od

inline put_ended() {
#ifdef BLIND_CHANGE
  state = was;
#endif
  ended[w] = true
}
inline put_done() {
#ifndef CANCEL_BLIND
  if :: (state == CANCELLED) -> goto over :: else -> skip fi;
#endif
  state = DONE;
  ended[0] = true; ended[1] = true;
  assert(pages[0] == NPOS && pages[1] == NPOS);        /* DONE */
  assert(!cancelled);
  assert(!late)
}

proctype Process(byte me) {
  byte w = 0, at = 0, src = 0, job_src = 0, was = 0;
  bool late = false;              /* the topic was made again before the process began */
  bool ran = false, stopped = false, left[2];

  atomic {                                             /* alike, so in this order */
    (started == me) -> started = started + 1;
#ifndef RESUME_CANCELLED
    if :: (state != RUNNING) -> goto over :: else -> skip fi;
#endif
    stopped = cancelled; late = remade; was = state;
    left[0] = !ended[0]; left[1] = !ended[1];
#ifndef SOURCE_FORGOTTEN
    if :: (source[0] != 0) -> job_src = source[0] :: else -> job_src = source[1] fi;
#endif
#ifndef NO_LAST_LOOK
    if :: (!left[0] && !left[1]) -> left[1] = true :: else -> skip fi
#endif
  }

window:
  atomic {
    if
    :: (w == 2) -> goto all
    :: (w < 2 && !left[w]) -> goto next
    :: (w < 2 && left[w]) -> assert(!stopped)          /* CANCEL */
    fi
  }
#ifdef DONE_EARLY
  if :: (w == 1) -> CHANGE(put_done()) :: else -> skip fi;
#endif

session:
  skip;
#ifdef READ_FIRST
  d_step { at = ckpt[w]; src = source[w] }
  d_step { producer[w] = me }
#else
  d_step { producer[w] = me }
  atomic {                                             /* the barrier shows what was committed before it */
    if :: FENCED -> goto session :: else -> skip fi;
    at = ckpt[w]; src = source[w]
  }
#endif
#ifndef NO_TOPIC_ID
  if :: remade -> goto over :: else -> skip fi;        /* BLOCKED(topic) */
#endif

#if !defined(NO_SOURCE) && !defined(NO_SESSION_SOURCE)
  atomic {                                             /* another process may have made the checkpoint since */
    if :: (job_src == 0) -> job_src = src :: else -> skip fi;
    if :: (src != 0 && src != job_src) -> goto over :: else -> skip fi
  }
#endif

page:
  skip;
  if
  :: (at == NPOS) -> goto read
  :: (at < NPOS) -> skip
  fi;
  atomic {                                             /* it is fetched and decoded */
#ifndef NO_SOURCE
    if :: (job_src == 0) -> job_src = tenant :: else -> skip fi;
    if :: (job_src != tenant || src != 0 && src != tenant) -> goto over :: else -> skip fi;  /* BLOCKED(source) */
#else
    if :: (src != 0 && src != tenant) -> goto over :: else -> skip fi;  /* a window's own rule */
#endif
    src = tenant
  }
#ifdef ENDED_EARLY
  if :: (at == NPOS - 1) -> CHANGE(put_ended()) :: else -> skip fi;
#endif
#ifdef CHECKPOINT_FIRST
  atomic { if :: FENCED -> goto session :: else -> put_checkpoint() fi }
#endif
  atomic {
    if
    :: FENCED -> goto session
#ifndef NO_TOPIC_ID
    :: (!FENCED && remade) -> goto over                /* the topic of the session is gone */
#endif
    :: else ->
#if defined(CHECKPOINT_FIRST) || defined(CHECKPOINT_LATER)
         END_TXN(put_page())
#else
         END_TXN(put_page(); put_checkpoint())
#endif
    fi
  }
#ifdef CHECKPOINT_LATER
  atomic { if :: FENCED -> goto session :: else -> put_checkpoint() fi }
#endif
  at = at + 1;
  goto page;

doubt:
  skip;
#ifdef ASSUME_ABORT
  d_step { producer[w] = me }
  goto page;
#else
  goto session;
#endif

read:
  skip;
  if :: ended[w] -> skip                               /* only its session was wanted, or another process was here */
     :: !ended[w] -> CHANGE(put_ended())
     :: true -> skip                                   /* the end of the job makes up for it */
  fi;
next:
  skip;
  d_step { w = w + 1; at = 0; src = 0 };
  goto window;

all:
  skip;
  CHANGE(put_done());

over:
  skip
}

proctype World() {
end:
  do
#ifdef CANCEL
  :: d_step { (state == RUNNING) -> state = CANCELLED; cancelled = true }
#endif
#ifdef REMAKE
  :: d_step { !remade -> remade = true }
#endif
#ifdef TENANT
  :: d_step { (tenant == 1) -> tenant = 2 }
#endif
  :: false
  od
}

init {
  byte i = 0;
  atomic {
    producer[0] = NOBODY; producer[1] = NOBODY;
    run World();
    do :: (i < RUNS) -> run Process(i); i = i + 1 :: else -> break od
  }
}
