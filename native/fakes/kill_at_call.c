/* Preloaded into a process, ends it with SIGKILL at the N-th file-system call under a directory.
 *
 *   KILL_UNDER   absolute directory; calls that name a path below it, or a descriptor opened below
 *                it, count
 *   KILL_AT      number of the call at which to end the process; 0 never
 *   KILL_HOW     "before" the call, "after" it, or "half": a write that reaches the disk by half
 *   KILL_LOG     file to append one line per counted call to: "3 rename active"
 *
 * Built on the spot by tests/transact: cc -shared -fPIC -O1 kill_at_call.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define DESCRIPTORS 4096
static unsigned char ours[DESCRIPTORS];
static int calls;

static int under(const char *path)
{
    const char *directory = getenv("KILL_UNDER");
    return directory && path && strncmp(path, directory, strlen(directory)) == 0;
}

static int is_ours(int descriptor)
{
    return descriptor >= 0 && descriptor < DESCRIPTORS && ours[descriptor];
}

static void end_process(void)
{
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;)
        ;
}

/* Counts a call; true when it is the one. */
static int counted(const char *name, const char *what)
{
    const char *at = getenv("KILL_AT"), *log = getenv("KILL_LOG");
    const char *base = what ? strrchr(what, '/') : NULL;
    calls++;
    if (log) {
        char line[512];
        int length = snprintf(line, sizeof line, "%d %s %s\n", calls, name,
                              base ? base + 1 : what ? what : "-");
        int out = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        syscall(SYS_write, out, line, (size_t)length);
        syscall(SYS_close, out);
    }
    return at && calls == atoi(at);
}

static int how(const char *mode)
{
    const char *chosen = getenv("KILL_HOW");
    return strcmp(chosen ? chosen : "before", mode) == 0;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* CALL(condition, name, what, expression): run the expression, ending the process around it. */
#define CALL(condition, name, what, type, expression)                                            \
    do {                                                                                         \
        int last = (condition) && counted(name, what);                                           \
        if (last && !how("after"))                                                               \
            end_process();                                                                       \
        type result = (expression);                                                              \
        if (last)                                                                                \
            end_process();                                                                       \
        return result;                                                                           \
    } while (0)

static int opened(int descriptor, const char *path)
{
    if (descriptor >= 0 && descriptor < DESCRIPTORS)
        ours[descriptor] = (unsigned char)under(path);
    return descriptor;
}

#define OPEN(name)                                                                               \
    int name(const char *path, int flags, ...)                                                   \
    {                                                                                            \
        va_list rest;                                                                            \
        va_start(rest, flags);                                                                   \
        mode_t mode = (flags & O_CREAT) ? (mode_t)va_arg(rest, int) : 0;                         \
        va_end(rest);                                                                            \
        REAL(name);                                                                              \
        CALL(under(path), "open", path, int, opened(real(path, flags, mode), path));             \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                             \
    int name(int at, const char *path, int flags, ...)                                           \
    {                                                                                            \
        va_list rest;                                                                            \
        va_start(rest, flags);                                                                   \
        mode_t mode = (flags & O_CREAT) ? (mode_t)va_arg(rest, int) : 0;                         \
        va_end(rest);                                                                            \
        REAL(name);                                                                              \
        CALL(under(path), "open", path, int, opened(real(at, path, flags, mode), path));         \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int descriptor, const void *bytes, size_t size)
{
    REAL(write);
    int last = is_ours(descriptor) && counted("write", NULL);
    if (last && how("half"))
        real(descriptor, bytes, size / 2);
    if (last && !how("after"))
        end_process();
    ssize_t result = real(descriptor, bytes, size);
    if (last)
        end_process();
    return result;
}

int close(int descriptor)
{
    REAL(close);
    int mine = is_ours(descriptor);
    if (mine)
        ours[descriptor] = 0;
    CALL(mine, "close", NULL, int, real(descriptor));
}

int fsync(int descriptor)
{
    REAL(fsync);
    CALL(is_ours(descriptor), "fsync", NULL, int, real(descriptor));
}

int ftruncate(int descriptor, off_t length)
{
    REAL(ftruncate);
    CALL(is_ours(descriptor), "ftruncate", NULL, int, real(descriptor, length));
}

int flock(int descriptor, int operation)
{
    REAL(flock);
    CALL(is_ours(descriptor), "flock", NULL, int, real(descriptor, operation));
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    CALL(under(to), "rename", to, int, real(from, to));
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    CALL(under(path), "mkdir", path, int, real(path, mode));
}

int unlink(const char *path)
{
    REAL(unlink);
    CALL(under(path), "unlink", path, int, real(path));
}
