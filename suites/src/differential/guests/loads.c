/* Loading programs: every error of execve before the point of no return, limits of lines and
 * arguments, descriptors, what is kept and what is not. Also built for 32 bits. Runs copies of
 * itself, which print what they got. */
#include "step.h"
#if defined __i386__ || defined NARROW
#define NAME "narrow"
#else
#define NAME "loads"
#endif
extern char **environ;
static void put(const char *n, const char *t, size_t l, int m){int f=open(n,O_CREAT|O_TRUNC|O_WRONLY,0755); if(write(f,t,l)!=(ssize_t)l) perror("w"); close(f); chmod(n,m);}
static void tell_end(const char *what, int status){ if(WIFEXITED(status)) printf("%s: exit %d\n",what,WEXITSTATUS(status)); else printf("%s: signal %d\n",what,WTERMSIG(status)); fflush(stdout);}
#define TRY(what, call) do{ fflush(stdout); pid_t p=fork(); if(!p){ call; printf("%s: %s\n",what,strerrorname_np(errno)); fflush(stdout); _exit(99);} int s; waitpid(p,&s,0); tell_end(what,s);}while(0)
static char *A[]={"zero","one","two words",0};
static void *thr(void*x){ execv(x,(char*[]){"zero","show",0}); return 0; }
int show(int c,char**v){
  char comm[20]=""; prctl(PR_GET_NAME,comm); printf("  comm %s argc %d",comm,c); for(int i=0;i<c&&i<14;i++)printf(" [%s]",v[i]);
  int n=0; DIR*d=opendir("/proc/self/task"); if(d){while(readdir(d))n++;closedir(d);} printf(" threads %d",n-2);
  for(int i=3;i<20;i++) if(fcntl(i,F_GETFD)>=0) printf(" fd%d",i);
  char b[4096]; ssize_t l=readlink("/proc/self/exe",b,4095); b[l>0?l:0]=0; char*e=strrchr(b,'/'); printf(" exe %s execfn %s", e?e:b, (char*)getauxval(AT_EXECFN));
  struct itimerval it; getitimer(ITIMER_REAL,&it); printf(" timer %d",it.it_value.tv_sec>0);
  sigset_t m; sigprocmask(0,0,&m); printf(" mask %d",sigismember(&m,SIGUSR1)); struct sigaction a; sigaction(SIGUSR2,0,&a); printf(" usr2 %d",a.sa_handler==SIG_DFL); sigaction(SIGHUP,0,&a); printf(" hup %d\n",a.sa_handler==SIG_IGN);
  fflush(stdout); return 0; }
static void h(int s){}
int main(int c,char**v){
  if(c>1 && !strcmp(v[1],"show")) return show(c,v);
  if(strcmp(v[0],"/bin/" NAME)) return show(c,v);
  start(NAME);
  char self[4096]; ssize_t l=readlink("/proc/self/exe",self,4095); self[l]=0;
  mkdir("d",0755); put("plain","x",1,0644); put("empty","",0,0755); put("text","echo hello\n",11,0755); symlink("loop","loop"); symlink("d","tod");
  int f=open(self,O_RDONLY); struct stat st; fstat(f,&st); char*all=malloc(st.st_size); read(f,all,st.st_size); put("prog",all,st.st_size,0755);
  put("xonly",all,st.st_size,0111); 
  put("short",all,40,0755); put("cut",all,64,0755); char machine=all[18]; all[18]=0x34; all[19]=0x12; put("foreign",all,st.st_size,0755); all[18]=machine; all[19]=0; all[16]=1; put("rel",all,st.st_size,0755); all[16]=2; 
  symlink("prog","link");
  put("s1","#!./prog arg  with\tblanks \nx",27,0755);
  for(int i=2;i<8;i++){char n[9],t[40];sprintf(n,"s%d",i);sprintf(t,"#!./s%d a%d\n",i-1,i);put(n,t,strlen(t),0755);}
  put("lost","#!/nowhere\n",11,0755); put("todir","#!./d\n",6,0755); put("noname","#!  \n",5,0755); put("crlf","#!./prog\r\n",10,0755);
  char line[400]; memset(line,'x',400); memcpy(line,"#!./",4); 
  for(int n=250;n<262;n++){ char name[20]; sprintf(name,"long%d",n); char t[400]; memcpy(t,line,n); put(name,t,n,0755); t[n-1]='\n'; sprintf(name,"nl%d",n); put(name,t,n,0755);}
  const char*list[]={"nothing","","d","d/","tod","plain","plain/x","prog/","empty","text","loop","short","cut","foreign","rel","lost","todir","noname","crlf","./prog","link","d/../prog","xonly","s1","./s1","s5","s6","s7","/proc/self/exe",0};
  for(int i=0;list[i];i++){ char what[60]; sprintf(what,"exec '%s'",list[i]); TRY(what,execve(list[i],A,environ)); }
  for(int n=250;n<262;n++){ char name[20]; sprintf(name,"long%d",n); TRY(name,execv(name,A)); sprintf(name,"nl%d",n); TRY(name,execv(name,A)); }
  TRY("argv 8",execve("prog",(char**)8,environ)); TRY("envp 8",execve("prog",A,(char**)8)); TRY("path 8",execve((char*)8,A,environ)); TRY("argv null",execve("prog",0,0)); TRY("script argv null",execve("s1",0,0)); TRY("script argv 8",execve("s1",(char**)8,0));
  char*bad[]={"zero",(char*)8,0}; TRY("bad string",execve("prog",bad,environ)); TRY("script bad string",execve("s1",bad,environ));
  char*big=malloc(4<<20); memset(big,'b',4<<20); big[(128<<10)-1]=0; char*one[]={"zero",big,0}; big[131071]=0; TRY("131071",execve("./prog",one,environ)); big[131071]='b'; big[131072]=0; TRY("131072",execve("./prog",one,environ));
  char**many=malloc(8*400002); char*hundred=strdup("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"); for(int i=0;i<400000;i++)many[i]=hundred; many[400000]=0; TRY("3MB",execve("./prog",many,environ)); many[10000]=0; TRY("1MB",execve("./prog",many,environ));
  for(int i=0;i<400000;i++)many[i]="y"; many[12000]=0; put("count","#!./prog\n",9,0755); TRY("script 12000",execve("./count",many,environ)); 
  int p=open("prog",O_RDONLY|O_CLOEXEC),pd=open("d",O_PATH),pc=open(".",O_PATH|O_CLOEXEC),s1=open("s1",O_RDONLY),s1c=open("s1",O_RDONLY|O_CLOEXEC);
  (void)pd;
  TRY("fexecve",syscall(SYS_execveat,p,"",A,environ,AT_EMPTY_PATH)); TRY("no flag",syscall(SYS_execveat,p,"",A,environ,0)); TRY("at",syscall(SYS_execveat,pc,"prog",A,environ,0)); TRY("at nofollow",syscall(SYS_execveat,pc,"link",A,environ,AT_SYMLINK_NOFOLLOW)); TRY("flags",syscall(SYS_execveat,pc,"link",A,environ,4)); TRY("badfd",syscall(SYS_execveat,77,"link",A,environ,0)); TRY("badfd abs",syscall(SYS_execveat,77,"/bin/" NAME,A,environ,0)); TRY("script fd",syscall(SYS_execveat,s1,"",A,environ,AT_EMPTY_PATH)); TRY("script cloexec fd",syscall(SYS_execveat,s1c,"",A,environ,AT_EMPTY_PATH));
  TRY("at notdir", syscall(SYS_execveat,p,"x",A,environ,0));
  TRY("dir fd", syscall(SYS_execveat,pc,"",A,environ,AT_EMPTY_PATH));
  char pf[40]; sprintf(pf,"/proc/self/fd/%d",p); TRY("proc fd",execve(pf,A,environ));
  all[16]=st.st_size?all[16]:0; int m=memfd_create("mem",0); lseek(f,0,SEEK_SET); read(f,all,st.st_size); write(m,all,st.st_size); sprintf(pf,"/proc/self/fd/%d",m); TRY("memfd proc",execve(pf,A,environ)); TRY("memfd at",syscall(SYS_execveat,m,"",A,environ,AT_EMPTY_PATH));
  put("gone",all,st.st_size,0755); int g=open("gone",O_RDONLY); unlink("gone"); TRY("deleted",syscall(SYS_execveat,g,"",A,environ,AT_EMPTY_PATH)); sprintf(pf,"/proc/self/fd/%d",g); TRY("deleted proc",execve(pf,A,environ)); close(g); close(m); close(s1); close(pd);
  TRY("thread",({pthread_t t; pthread_create(&t,0,thr,"./prog"); pthread_join(t,0);}));
  TRY("state",({struct itimerval it={{0,0},{100,0}}; setitimer(ITIMER_REAL,&it,0); sigset_t mm; sigemptyset(&mm); sigaddset(&mm,SIGUSR1); sigprocmask(SIG_BLOCK,&mm,0); signal(SIGUSR2,h); signal(SIGHUP,SIG_IGN); prctl(PR_SET_NAME,"other"); execv("./prog",A);}));
  TRY("failed keeps cloexec",({execv("foreign",A); printf("open %d ",fcntl(p,F_GETFD)); }));
  pid_t q; printf("spawn %d\n",posix_spawn(&q,"/nope",0,0,A,environ)); fflush(stdout); printf("spawn %d\n",posix_spawn(&q,"./prog",0,0,A,environ)); int s; waitpid(q,&s,0);
  TRY("cloned vfork",({ if(!vfork()){ execv("./prog",A); _exit(3);} wait(&s); _exit(WEXITSTATUS(s)); }));
  TRY("long comm",({ symlink("prog","a-very-long-name-of-a-program"); execv("./a-very-long-name-of-a-program",A);}));
  return 0; }
